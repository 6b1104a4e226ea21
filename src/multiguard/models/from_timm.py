"""`timm:NAME`: an architecture of timm with the weights of a file."""

from multiguard.errors import ModelError
from multiguard.io.files import file_checksum
from multiguard.models.backbone import build_backbone
from multiguard.models.classifier import Classifier
from multiguard.models.options import ModelOptions


def load_timm(name: str, options: ModelOptions) -> Classifier:
    """The classifier of this timm name, every tensor taken from the weights file and none left at random."""
    spec = f"timm:{name}"
    labels = options.need_labels(spec)
    if options.weights is None:
        raise ModelError(f"{spec}: give its weights as a .safetensors or .pth file, weights=FILE.")
    backbone = build_backbone(spec, len(labels), str(options.weights))
    if backbone.fresh:
        raise ModelError(
            f"{options.weights} does not fit {spec} with these {len(labels)} labels: its {backbone.fresh[0]!r} has "
            "another shape or is missing; give the labels that the weights were trained for."
        )
    return Classifier(
        backbone.network,
        labels,
        output="logits" if options.output is None else options.need_output(spec),
        mean=options.mean or backbone.mean,
        std=options.std or backbone.std,
        image_size=options.image_size,
        name=options.name or spec,
        weights_hash=file_checksum(options.weights),
    )
