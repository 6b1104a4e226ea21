"""Puts a trained model into the package: `python -m benchmarks.release RUN NAME --root COCO`.

RUN is a run folder: its model (trained with `--half`), votes drawn with exactly these weights, and their certificates.
Weights and card of the model are copied, without paths of the machine that trained it. What is measured goes to
measured.json, and the text of MODEL_CARD.md is made from it and from the records of training. The test suite compares
every model with the reference logits that are written here.

`--published` measures a model of the package again, of which RUN has only certificates: by a newer method, say.
measured.json changes, and the card up to its scores; what it says of data, training and limits stays.
"""

import argparse
import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from multiguard.certify.rules import TopK
from multiguard.data import load_pixels, open_dataset
from multiguard.errors import InvalidInputError
from multiguard.evaluate import Results, read_certificates
from multiguard.evaluate.scores import label_scores
from multiguard.io.rounding import percent, plain
from multiguard.models.built_in import MEASURED_FILE, TEXT_FILE
from multiguard.models.card import WEIGHTS_FILE, ModelCard, read_card, write_card
from multiguard.models.classifier import Classifier
from multiguard.models.model_folder import load_folder
from multiguard.models.onnx import GRAPH_FILE
from multiguard.models.spec import BUILT_IN, CARD_FILE, import_library
from multiguard.train.trainer import noisy_map

REFERENCES = Path(__file__).parent.parent / "tests" / "models" / "built_in_logits.json"
_BATCH = 4
_RADII = (0.0, 0.5, 1.0, 1.5, 2.0)  # in sigma
_AFTER_SCORES = "## Data and training"

_TEXT = """# {name}: objects in photos

Labels for a photo, out of the {labels} of MS-COCO. The network is `{architecture}`: an EfficientNet-Lite behind a U-Net
that cleans the image, {parameters:,} weights, stored in half precision and loaded in single precision. It was trained
to be smoothed with Gaussian noise of standard deviation {sigma} on pixels in [0, 1]: use it with this noise, which is
what `multiguard` does by default. It is not meant to be used without noise.

```
multiguard predict photo.jpg --model {name}
```

## Scores

On {images} images of {data}, which had no part in training or in choosing the epoch. Mean average
precision: {map_clean} without noise, {map_noisy} on one noisy copy of each image.

Certified recall by `{method}` with k' = {k_prime}, k = {k}, {draws} draws per image and alpha = {alpha}: the fraction
of an image's labels that no perturbation of l2-norm up to R takes from the {k} labels returned, as the mean over
images, rounded down. R is the norm at {size}x{size} pixels: the same perturbation of a photo at half the height and
width has half the norm.

| R | {radii} |
|---|{rules}|
| certified recall | {recall} |

Each label alone, by `{label_method}` on the same draws: in which fraction of the images that have it the label
provably stays up to R. Labels that few images have are measured roughly.

| label | images | {radii} |
|---|---|{rules}|
{per_label}

## Data and training

Trained on {train_name}: {train_images:,} images, resized to {size}x{size} pixels. It started from {start}.{teacher}
Every setting of this training is in `{card_file}`; these are its hyperparameters:

{recipe}
{before}
The recipe `coco-tagger` trains a network of this kind from ImageNet weights on.

The sha256 of the weights file is `{weights_sha256}`.

## Limits

- It knows {labels} kinds of objects and returns {k} labels for every image; what it does not know, it cannot name.
- Images are squashed to {size}x{size} pixels. Small objects are often missed, and rare labels are weak: see the table.
- The images that trained it had been stored with 224x224 pixels, those that were certified with 256x256; all were
  enlarged. Photos with more detail were not measured.
- A certificate says that labels stay under small perturbations of this image. It does not say that they are right.
- COCO's photos come from Flickr and show what was photographed and uploaded there; other places, times and cameras are
  underrepresented. Do not use it to make decisions about people.

## Licence

The weights are published under {licence}, as the package is. Training started from the ImageNet weights of
EfficientNet-Lite, published under Apache-2.0. The annotations of MS-COCO are published under CC BY 4.0; its images are
from Flickr, under their owners' terms, and are not part of the package.
"""


@dataclass(frozen=True)
class MeasuredLabel:
    """How often one label is certified on its own, on the images that have it."""

    name: str
    images: int
    certified: tuple[float, ...]  # at each of the radii


@dataclass(frozen=True)
class Measured:
    """The content of measured.json: what a release measured of these weights, on images that trained nothing."""

    weights_sha256: str  # of the weights that were measured
    parameters: int
    task: str
    licence: str
    labels: int
    sigma: float
    size: int  # height and width of the images, where noise and radii are measured
    data: str  # the images
    images: int
    map_clean: float  # mean average precision without noise
    map_noisy: float  # and on one noisy copy of each image
    k: int
    k_prime: int
    draws: int
    alpha: float
    method: str
    radii: tuple[float, ...]
    recall: tuple[float, ...]  # certified recall at each of the radii, the mean over images
    label_method: str  # the method of the labels' own radii
    per_label: tuple[MeasuredLabel, ...]  # those that some image has


def main() -> None:
    """Measure, write the folder, and add the reference logits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="holds model/ and certificates/")
    parser.add_argument("name")
    parser.add_argument("--root", type=Path, required=True, help="the COCO folder with the images that were voted on")
    parser.add_argument("--start", type=Path, help="the model folder that training started from, if it was one")
    parser.add_argument("--published", action="store_true", help="measure the published model NAME again")
    parser.add_argument("--out", type=Path, default=BUILT_IN, help="where the folder NAME is written")
    parser.add_argument("--references", type=Path, default=REFERENCES)
    args = parser.parse_args()
    out = args.out / args.name
    if args.published and args.start is not None:
        parser.error("--start is about a new model, and --published about one that is there")
    if args.published:
        measure_again(args.run, args.name, args.root, out)
    else:
        release(args.run, args.name, args.root, out, args.references, args.start)


def measure_again(run: Path, name: str, root: Path, out: Path) -> None:
    """Replace what the published folder says of its scores."""
    card = read_card(out)
    measured = measure(out, card, read_certificates(run / "certificates"), root)
    text = with_scores((out / TEXT_FILE).read_text(), card_text(name, card, measured))
    _write_measured(out, measured)
    (out / TEXT_FILE).write_text(text)


def with_scores(old: str, new: str) -> str:
    """The text of a card with the scores of another, and everything after them as it was."""
    (scores, _), (_, rest) = new.split(_AFTER_SCORES), old.split(_AFTER_SCORES)
    return f"{scores}{_AFTER_SCORES}{rest}"


def release(run: Path, name: str, root: Path, out: Path, references: Path, start: Path | None = None) -> None:
    """Write the folder of the model, and its reference logits into the tests' file."""
    card, results = published(read_card(run / "model")), read_certificates(run / "certificates")
    before = read_start(card, start)
    measured = measure(run / "model", card, results, root)
    out.mkdir(parents=True, exist_ok=True)
    (out / WEIGHTS_FILE).write_bytes((run / "model" / WEIGHTS_FILE).read_bytes())
    write_card(out, card)
    write_graph(out)
    _write_measured(out, measured)
    (out / TEXT_FILE).write_text(card_text(name, card, measured, before))
    known = json.loads(references.read_text()) if references.is_file() else {}
    known[name] = reference_logits(out)
    references.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


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


def _write_measured(out: Path, measured: Measured) -> None:
    (out / MEASURED_FILE).write_text(json.dumps(asdict(measured), indent=1) + "\n")
    print(f"{out}: certified recall {dict(zip(measured.radii, measured.recall, strict=True))}")


def published(card: ModelCard) -> ModelCard:
    """The card with names in place of the paths of the machine that trained it."""
    names = {key: Path(card.training[key]).name for key in ("model",) if "/" in card.training.get(key, "")}
    return replace(card, training={**card.training, **names})


def read_start(card: ModelCard, start: Path | None) -> ModelCard | None:
    """The card of the model folder that training started from, if it was one; another folder is refused."""
    wanted = card.training.get("model_sha256")
    if wanted is not None and start is None:
        raise InvalidInputError(f"training started from a model folder ({wanted[:12]}...): name it with --start")
    before = None if start is None else published(read_card(start))
    if before is not None and before.weights_sha256 != wanted:
        raise InvalidInputError(f"training did not start from {start}: the sha256 of its weights is another")
    return before


def measure(folder: Path, card: ModelCard, results: Results, root: Path) -> Measured:
    """Everything that the card says in numbers; certificates of other weights are refused."""
    certificates, rule = results.certificates, results.certificates.config.rule
    if results.provenance["weights_hash"] != card.weights_sha256:
        raise InvalidInputError("the votes were drawn with other weights than those in the folder")
    if not isinstance(rule, TopK) or certificates.config.draws is None or certificates.noise != card.noise:
        raise InvalidInputError("the certificates must be of the top-k rule, fixed draws and the model's own sigma")
    if certificates.failures or not certificates.labelled:
        raise InvalidInputError("the certificates must be about the true labels of images that could all be read")
    data = open_dataset("coco", root=root, split="val", size=card.image_size[0])
    if tuple(data.ids) != certificates.ids:
        raise InvalidInputError(f"{root} does not hold exactly the images that were voted on, in their order")
    classifier, pixels, method = _SmallBatches(load_folder(folder)), load_pixels(data), certificates.methods[0]
    radii = tuple(card.noise.sigma * radius for radius in _RADII)
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
        map_noisy=noisy_map(classifier, pixels, card.noise),
        k=rule.k,
        k_prime=rule.k_prime,
        draws=certificates.config.draws,
        alpha=certificates.config.alpha,
        method=method,
        radii=radii,
        recall=tuple(results.curve(radii, method=method).scores.recall.tolist()),
        label_method="joint",
        per_label=tuple(
            MeasuredLabel(scores.label, scores.images, tuple(scores.certified.tolist()))
            for scores in label_scores(certificates, radii)
        ),
    )


class _SmallBatches(nn.Module):
    """A classifier that takes a few images at a time: large batches cost a CPU more time for memory than for sums."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.classifier = classifier.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: Tensor) -> Tensor:
        parts = images.contiguous(memory_format=torch.channels_last).split(_BATCH)
        return torch.cat([self.classifier(part) for part in parts])


def card_text(name: str, card: ModelCard, measured: Measured, before: ModelCard | None = None) -> str:
    """The Markdown of the card; certified numbers are rounded down."""
    numbers = asdict(measured) | {
        "sigma": plain(measured.sigma),
        "alpha": plain(measured.alpha),
        "map_clean": f"{measured.map_clean:.3f}",
        "map_noisy": f"{measured.map_noisy:.3f}",
        "radii": " | ".join(map(plain, measured.radii)),
        "rules": "|".join("---" for _ in measured.radii),
        "recall": " | ".join(map(percent, measured.recall)),
        "per_label": "\n".join(
            f"| {label.name} | {label.images} | {' | '.join(map(percent, label.certified))} |"
            for label in measured.per_label
        ),
    }
    trained, weights = card.training["train"], card.training["weights"]
    start = "random weights" if weights is None else f"the weights in `{weights['source']}`"
    more = ""
    if before is not None:
        start = f"another trained network, whose weights have the sha256 `{before.weights_sha256}`"
        settings = json.dumps(before.training, indent=1)
        more = f"\nThe training of the network that it started from, as recorded:\n\n```\n{settings}\n```\n"
    taught = card.training.get("teacher_sha256")
    teacher = (
        "" if taught is None else " It also learnt from the scores of a teacher that saw the images without noise."
    )
    return _TEXT.format(
        name=name,
        architecture=card.architecture,
        card_file=CARD_FILE,
        train_name=trained["name"],
        train_images=trained["images"],
        start=start,
        teacher=teacher,
        before=more,
        recipe=_settings(card.training["recipe"]),
        **numbers,
    )


def _settings(record: Mapping[str, object]) -> str:
    return "\n".join(["| setting | value |", "|---|---|", *(f"| {key} | {value} |" for key, value in record.items())])


@torch.no_grad()
def reference_logits(folder: Path) -> list[float]:
    """The logits of one small synthetic image."""
    image = torch.linspace(0, 1, 3 * 64 * 64).view(1, 3, 64, 64)
    return [round(logit, 5) for logit in load_folder(folder)(image)[0].tolist()]


if __name__ == "__main__":
    main()
