"""Images with their label sets, from common layouts on disk or built in."""

from multiguard.data.config import DataConfig, open_dataset
from multiguard.data.digits import DigitsDataset
from multiguard.data.image import image_hash, read_image
from multiguard.data.image_folder import open_images
from multiguard.data.in_memory import as_dataset
from multiguard.data.sample import Dataset, IndexedDataset, Pixels, Sample, hold_out, load_pixels, subset

__all__ = [
    "DataConfig",
    "Dataset",
    "DigitsDataset",
    "IndexedDataset",
    "Pixels",
    "Sample",
    "as_dataset",
    "hold_out",
    "image_hash",
    "load_pixels",
    "open_dataset",
    "open_images",
    "read_image",
    "subset",
]
