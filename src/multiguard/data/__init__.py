"""The data room: images with their label sets, from the layouts that people have, or embedded."""

from multiguard.data.catalog import DATASETS, open_dataset
from multiguard.data.check import DataReport, check_dataset
from multiguard.data.digits import DigitsDataset
from multiguard.data.images import open_images
from multiguard.data.pixels import Pixels, load_pixels
from multiguard.data.sample import Catalogued, Dataset, Problem, Sample
from multiguard.data.source import Source
from multiguard.data.subset import Subset, hold_out, subset

__all__ = [
    "DATASETS",
    "Catalogued",
    "DataReport",
    "Dataset",
    "DigitsDataset",
    "Pixels",
    "Problem",
    "Sample",
    "Source",
    "Subset",
    "check_dataset",
    "hold_out",
    "load_pixels",
    "open_dataset",
    "open_images",
    "subset",
]
