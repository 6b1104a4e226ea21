"""Puts a trained model into the package: `python -m benchmarks.release MODEL NAME --certificates DIR... --root COCO`.

MODEL is a model folder, trained with `half`. Each DIR holds certificates, by the top-k rule, of votes drawn with
exactly these weights, one noise each; one is of the noise in the model's card. Weights and card are copied, without
paths of the machine that trained them. What is measured goes to measured.json, with the training of the network that
this one started from, and MODEL_CARD.md, one screen, is made from it. The test suite compares every model with the
reference logits that are written here.
"""

import argparse
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from multiguard.certify.noise import parse_noise
from multiguard.certify.rules import TopK
from multiguard.data import load_pixels, open_dataset
from multiguard.errors import InvalidInputError
from multiguard.evaluate import Certificates, Results, read_certificates
from multiguard.evaluate.scores import label_scores
from multiguard.io.rounding import percent, plain
from multiguard.models.built_in import MEASURED_FILE, TEXT_FILE
from multiguard.models.card import WEIGHTS_FILE, ModelCard, read_card, write_card
from multiguard.models.classifier import Classifier
from multiguard.models.model_folder import load_folder
from multiguard.models.onnx import GRAPH_FILE
from multiguard.models.spec import BUILT_IN, import_library
from multiguard.train.trainer import noisy_map

REFERENCES = Path(__file__).parent.parent / "tests" / "models" / "built_in_logits.json"
_BATCH = 4
_RADII = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)

_TEXT = """# {name}: objects in photos

Labels for a photo, out of the {labels} of MS-COCO. One network for Gaussian noise of any standard deviation sigma from
{lowest} to {highest} on pixels in [0, 1]; sigma = {sigma} is the default. It is made to be smoothed.

```
multiguard predict photo.jpg --model {name} --sigma {sigma}
```

Certified recall on {images} images of {data}, which had no part in training, by `{method}` with
k' = {k_prime}, k = {k}, {draws} draws and alpha = {alpha}: the part of an image's labels that no perturbation of
l2-norm up to R takes from the {k} labels returned, as a mean over images, rounded down. R is measured at {size} x
{size} pixels.

| sigma | mAP | {radii} |
|---|---|{rules}|
{curves}

mAP is the mean average precision on one noisy copy of each image; it is {map_clean} without noise. `measured.json`,
beside this card, has each label on its own.

- **Network**: `{architecture}`, an EfficientNet-Lite behind a U-Net that cleans the image, {parameters:,} weights,
  stored in half precision, computed in single precision.
- **Training**: {train_images:,} images of MS-COCO 2014 train, enlarged to {size} x {size} pixels, from
  {start}{teacher}. `model.json` has every setting; the recipe `coco-tagger` trains such a network from ImageNet
  weights.
- **Limits**: it knows {labels} kinds of objects and returns {k} labels for every image. Images are squashed to a
  square; small objects and rare labels are weak. The photos had 256 x 256 pixels; more detail was not measured. A
  certificate says that labels stay, not that they are right. COCO's photos come from Flickr; other places, times
  and cameras are underrepresented. Do not use it to make decisions about people.
- **Licence**: {licence}, as the package. Training started from ImageNet weights of EfficientNet-Lite (Apache-2.0). The
  annotations of MS-COCO are published under CC BY 4.0; its images are not part of the package.
- **Weights**: sha256 `{weights_sha256}`
"""


@dataclass(frozen=True)
class MeasuredLabel:
    """How often one label is certified on its own, on the images that have it."""

    name: str
    images: int
    certified: tuple[float, ...]  # at each of the radii


@dataclass(frozen=True)
class Curve:
    """What one noise certifies."""

    sigma: float
    map_noisy: float  # mean average precision on one noisy copy of each image
    recall: tuple[float, ...]  # certified recall at each of the radii, the mean over images


@dataclass(frozen=True)
class Measured:
    """The content of measured.json: what a release measured of these weights, on images that trained nothing."""

    weights_sha256: str  # of the weights that were measured
    parameters: int
    task: str
    licence: str
    labels: int
    sigma: float  # the default
    size: int  # height and width of the images, where noise and radii are measured
    data: str  # the images
    images: int
    map_clean: float  # mean average precision without noise
    k: int
    k_prime: int
    draws: int
    alpha: float
    method: str
    radii: tuple[float, ...]
    curves: tuple[Curve, ...]
    label_method: str  # the method of the labels' own radii
    per_label: tuple[MeasuredLabel, ...]  # those that some image has, at the default sigma
    before: Mapping[str, Any]  # the training of the network that this one started from


def main() -> None:
    """Measure, write the folder, and add the reference logits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="the model folder")
    parser.add_argument("name")
    parser.add_argument("--certificates", type=Path, nargs="+", required=True)
    parser.add_argument("--root", type=Path, required=True, help="the COCO folder with the images that were voted on")
    parser.add_argument("--start", type=Path, help="the model folder that training started from, if it was one")
    parser.add_argument("--out", type=Path, default=BUILT_IN, help="where the folder NAME is written")
    parser.add_argument("--references", type=Path, default=REFERENCES)
    args = parser.parse_args()
    release(args.model, args.name, args.certificates, args.root, args.out / args.name, args.references, args.start)


def release(
    model: Path,
    name: str,
    certificates: Sequence[Path],
    root: Path,
    out: Path,
    references: Path,
    start: Path | None = None,
) -> None:
    """Write the folder of the model, and its reference logits into the tests' file."""
    card = published(read_card(model))
    before = read_start(card, start)
    measured = measure(model, card, [read_certificates(folder) for folder in certificates], root, before)
    out.mkdir(parents=True, exist_ok=True)
    (out / WEIGHTS_FILE).write_bytes((model / WEIGHTS_FILE).read_bytes())
    write_card(out, card)
    write_graph(out)
    (out / MEASURED_FILE).write_text(json.dumps(asdict(measured), indent=1) + "\n")
    (out / TEXT_FILE).write_text(card_text(name, card, measured))
    known = json.loads(references.read_text()) if references.is_file() else {}
    known[name] = reference_logits(out)
    references.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    print((out / TEXT_FILE).read_text())


def write_graph(folder: Path) -> None:
    """Write the network of a model folder as an ONNX graph, whose weights are those of the file beside it.

    They stay in half precision there, and a Cast makes them single: nothing is stored twice, and one hash covers both.
    """
    onnx = import_library("onnx", "dev")
    classifier, buffer, size = load_folder(folder), io.BytesIO(), read_card(folder).image_size
    options = {"input_names": ["images"], "output_names": ["logits"], "do_constant_folding": False, "dynamo": False}
    batch = {"images": {0: "batch"}, "logits": {0: "batch"}}
    torch.onnx.export(classifier, (torch.zeros(2, 3, *size),), buffer, dynamic_axes=batch, **options)
    model, casts = onnx.load_from_string(buffer.getvalue()), []
    content = (folder / WEIGHTS_FILE).read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    places = json.loads(content[8:start])
    for tensor in model.graph.initializer:
        if (place := places.get(tensor.name)) is None:
            continue
        first, last = place["data_offsets"]
        half = onnx.TensorProto(name=f"{tensor.name}.half", data_type=onnx.TensorProto.FLOAT16, dims=tensor.dims)
        half.data_location = onnx.TensorProto.EXTERNAL
        for key, value in {"location": WEIGHTS_FILE, "offset": start + first, "length": last - first}.items():
            half.external_data.add(key=key, value=str(value))
        casts.append(onnx.helper.make_node("Cast", [half.name], [tensor.name], to=onnx.TensorProto.FLOAT))
        tensor.CopyFrom(half)
    nodes = list(model.graph.node)
    del model.graph.node[:]
    for node in nodes:
        node.doc_string = ""
    model.graph.node.extend([*casts, *nodes])
    (folder / GRAPH_FILE).write_bytes(model.SerializeToString())


def published(card: ModelCard) -> ModelCard:
    """The card with names in place of the paths of the machine that trained it."""
    names = {key: Path(card.training[key]).name for key in ("model",) if "/" in card.training.get(key, "")}
    return replace(card, training={**card.training, **names})


def read_start(card: ModelCard, start: Path | None) -> Mapping[str, Any]:
    """The training of the model folder that this one started from, if it was one; another folder is refused."""
    wanted = card.training.get("model_sha256")
    if wanted is not None and start is None:
        raise InvalidInputError(f"training started from a model folder ({wanted[:12]}...): name it with --start")
    before = None if start is None else published(read_card(start))
    if before is not None and before.weights_sha256 != wanted:
        raise InvalidInputError(f"training did not start from {start}: the sha256 of its weights is another")
    return {} if before is None else before.training


def measure(
    folder: Path, card: ModelCard, results: Sequence[Results], root: Path, before: Mapping[str, Any]
) -> Measured:
    """Everything that the card says in numbers; certificates of other weights are refused."""
    by_noise = {each.certificates.noise: each for each in results}
    if card.noise not in by_noise:
        raise InvalidInputError(f"no certificates are of {card.noise}, the noise in the model's card")
    main = by_noise[card.noise].certificates
    data = open_dataset("coco", root=root, split="val", size=card.image_size[0])
    for each in results:
        _check(each, card, main, tuple(data.ids))
    classifier, pixels, rule, method = (
        _SmallBatches(load_folder(folder)),
        load_pixels(data),
        main.config.rule,
        main.methods[0],
    )
    return Measured(
        weights_sha256=card.weights_sha256,
        parameters=sum(weights.numel() for weights in classifier.parameters()),
        task="objects in photos",
        licence="Apache-2.0",
        labels=len(card.label_names),
        sigma=card.noise.sigma,
        size=card.image_size[0],
        data=f"MS-COCO 2014 validation ({data.name})",
        images=len(data),
        map_clean=noisy_map(classifier, pixels, None),
        k=rule.k,
        k_prime=rule.k_prime,
        draws=main.config.draws,
        alpha=main.config.alpha,
        method=method,
        radii=_RADII,
        curves=tuple(
            Curve(noise.sigma, noisy_map(classifier, pixels, noise), tuple(_recall(each, method)))
            for noise, each in sorted(by_noise.items(), key=lambda item: item[0].sigma)
        ),
        label_method="joint",
        per_label=tuple(
            MeasuredLabel(scores.label, scores.images, tuple(scores.certified.tolist()))
            for scores in label_scores(main, _RADII)
        ),
        before=before,
    )


def _check(results: Results, card: ModelCard, main: Certificates, ids: tuple[str, ...]) -> None:
    """Raises `InvalidInputError` unless the certificates are of these weights and images, and like the main ones."""
    certificates = results.certificates
    if results.provenance["weights_hash"] != card.weights_sha256:
        raise InvalidInputError("the votes were drawn with other weights than those in the folder")
    if not isinstance(certificates.config.rule, TopK) or certificates.config.draws is None:
        raise InvalidInputError("the certificates must be of the top-k rule and of fixed draws")
    if certificates.config != main.config or certificates.methods != main.methods:
        raise InvalidInputError("the certificates of the noises must have one config")
    if certificates.failures or not certificates.labelled:
        raise InvalidInputError("the certificates must be about the true labels of images that could all be read")
    if ids != certificates.ids:
        raise InvalidInputError("the folder does not hold exactly the images that were voted on, in their order")


def _recall(results: Results, method: str) -> list[float]:
    recall: list[float] = results.curve(_RADII, method=method).scores.recall.tolist()
    return recall


class _SmallBatches(nn.Module):
    """A classifier that takes a few images at a time: large batches cost a CPU more time for memory than for sums."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.classifier = classifier.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: Tensor) -> Tensor:
        parts = images.contiguous(memory_format=torch.channels_last).split(_BATCH)
        return torch.cat([self.classifier(part) for part in parts])


def card_text(name: str, card: ModelCard, measured: Measured) -> str:
    """The Markdown of the card; certified numbers are rounded down."""
    training, recipe = card.training, card.training["recipe"]
    weights, lowest = training["weights"], parse_noise(recipe["noise"]).sigma
    start = "random weights" if weights is None else f"the weights in `{weights['source']}`"
    if training.get("model_sha256") is not None:
        start = f"`{training['model']}` (weights `{training['model_sha256'][:16]}`)"
    numbers = asdict(measured) | {
        "sigma": plain(measured.sigma),
        "alpha": plain(measured.alpha),
        "map_clean": f"{measured.map_clean:.3f}",
        "radii": " | ".join(f"R = {plain(radius)}" for radius in measured.radii),
        "rules": "|".join("--:" for _ in measured.radii),
        "curves": "\n".join(
            f"| {plain(curve.sigma)} | {curve.map_noisy:.3f} | {' | '.join(percent(r) for r in curve.recall)} |"
            for curve in measured.curves
        ),
    }
    return _TEXT.format(
        name=name,
        architecture=card.architecture,
        train_images=training["train"]["images"],
        start=start,
        teacher="" if training.get("teacher_sha256") is None else ", with the scores of a teacher on clean images",
        lowest=plain(lowest),
        highest=plain(recipe.get("sigma_max") or lowest),
        **numbers,
    )


@torch.no_grad()
def reference_logits(folder: Path) -> list[float]:
    """The logits of one small synthetic image."""
    image = torch.linspace(0, 1, 3 * 64 * 64).view(1, 3, 64, 64)
    return [round(logit, 5) for logit in load_folder(folder)(image)[0].tolist()]


if __name__ == "__main__":
    main()
