"""The phrases that figures, tables and the page share."""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from multiguard.certify import Method
from multiguard.certify.arguments import Ints
from multiguard.evaluate import Attacks, Curve, Results
from multiguard.evaluate.attacks import BEST
from multiguard.evaluate.config import is_one_claim
from multiguard.evaluate.curves import TEST_SET_ERROR, mean_bands, surely_staying
from multiguard.evaluate.scores import failed_words
from multiguard.io.rounding import percent, plain, plain_percent

METHOD_NAMES = {"paper": "paper (Theorem 1)", "jia": "Jia et al."}  # others are called what they are
ATTACK_NAMES = {"pgd": "gradients (PGD)", "random": "random search", BEST: "best of all attacks"}
_DATASETS = {"coco": "MS-COCO", "voc2007": "VOC 2007", "nuswide": "NUS-WIDE"}
_LITE = re.compile(r"(?:pool:\d\+)?(?P<denoiser>unet:\d+\+)?lite:(?P<variant>\d)(?:@\d+)?")
_SAMPLE = re.compile(r"(?P<name>.+?)(?: \(seed (?P<made>\d+)\))?, (?P<images>\d+) random images \(seed (?P<seed>\d+)\)")


def config_words(run: Results) -> dict[str, str]:
    """All parameters of a run by name: of the rule, n, alpha and the noise; where all bands vote, no alpha."""
    config, noise = run.certificates.config, run.certificates.noise
    if noise.enumerated:
        return {**config.rule.words, "noise": noise.words}
    draws = f"n = {config.draws}"
    if run.provenance.get("stops") is not None:
        draws = f"n up to {config.draws} ({mean_draws(run)} on average)"
    alpha = f"α = {plain(config.alpha)}"
    return {**config.rule.words, "n": draws, "alpha": alpha, "noise": noise.words}


def mean_draws(run: Results) -> str:
    """The mean number of draws of the images that count, from the run's curves."""
    curve = next(curve for curve in run.curves if curve.config == run.certificates.config)
    return plain(round(curve.mean_draws, 1))


def left_out_words(labelled: bool, without_labels: int, failed: int) -> str:
    """How many images an average leaves out, and why; empty if there are none."""
    unlabelled = "without labels" if labelled else "without a predicted label"
    counts = {unlabelled: without_labels, "that could not be voted on": failed}
    return " and ".join(f"{count} {why}" for why, count in counts.items() if count)


def curve_left_out(run: Results, curve: Curve) -> str:
    """How many images this curve leaves out, and why; empty if there are none."""
    return left_out_words(run.certificates.labelled, curve.scores.without_labels, curve.failed)


def failure_words(run: Results) -> str:
    """How many images failed, as a sentence; empty if none did."""
    failed, voted = len(run.certificates.failures), len(run.certificates.ids)
    words = failed_words(failed, failed + voted)
    return f"{words}." if words else ""


def dataset_title(provenance: Mapping[str, Any]) -> str:
    """The dataset and its split as a reader knows them, without the seeds that the recorded name holds.

    >>> dataset_title({"dataset": "digits test (seed 0), 120 random images (seed 0)"})
    'digits test'
    """
    name, space, split = re.split(r"[?\[(,]", str(provenance.get("dataset", "")))[0].strip().partition(" ")
    return f"{_DATASETS.get(name, name)}{space}{split}"


def dataset_words(dataset: str, total: int) -> str:
    """Which images these are: a random sample of a dataset in words, any other by the dataset's name."""
    sample = _SAMPLE.fullmatch(dataset)
    if sample is None or sample["images"] != str(total) or sample["made"] not in (None, "0"):
        return f"{total} of {dataset}"
    return f"{sample['name']}, {total} random images (seed {sample['seed']})"


def run_title(run: Results) -> str:
    """A title for a report on the run: which model, on which dataset."""
    model, dataset = model_name(run), dataset_title(run.provenance)
    return "Certified robustness" + (f" of {model}" if model else "") + (f" on {dataset}" if dataset else "")


def model_name(run: Results) -> str:
    """The name that the model was opened by, such as coco; of a path, or the model of a run, what it is made of."""
    model = run.source.get("model")
    spec = str(model.get("spec") or "") if isinstance(model, Mapping) else ""
    return spec if re.fullmatch(r"[\w.-]+", spec) and spec != "model" else network_name(str(run.provenance["model"]))


def network_name(architecture: str) -> str:
    """The network as people call it.

    >>> network_name("pool:2+unet:40+lite:2@288")
    'EfficientNet-Lite2 with a denoiser'
    """
    if (lite := _LITE.fullmatch(architecture)) is None:
        return "a small CNN" if re.fullmatch(r"cnn(:\d+)?", architecture) else architecture
    return f"EfficientNet-Lite{lite['variant']}{' with a denoiser' if lite['denoiser'] else ''}"


def commands_of(runs: Sequence[Results]) -> list[str]:
    """The commands that made these runs, as their certificates name them, each once and in order."""
    stored = [command for run in runs for command in (run.source.get("command"), run.command)]
    return list(dict.fromkeys(command for command in stored if command and isinstance(command, str)))


def shared_command(command: str) -> str:
    """The command line without the folders of whoever typed it.

    >>> shared_command("multiguard vote --out '/home/me/my runs/votes' --set data.root=/data/coco")
    'multiguard vote --out votes --set data.root=coco'
    """
    try:
        return shlex.join(map(without_folder, shlex.split(command)))
    except ValueError:  # a quotation that does not end
        return " ".join(map(without_folder, command.split()))


def without_folder(word: str) -> str:
    """The word, or KEY=VALUE; of an absolute path, which tells strangers who made it, the last name alone."""
    key, sign, path = word.rpartition("=")
    pure = PureWindowsPath(path) if PureWindowsPath(path).drive else PurePosixPath(path)
    return f"{key}{sign}{pure.name}" if pure.is_absolute() or path.startswith("~/") else word


def first_radius(run: Results) -> float:
    """The radius to speak of first: that of the noise, or the first one that adaptive draws were spent on."""
    radii = (run.provenance.get("stopping") or {}).get("radii") or [run.certificates.noise.typical_radius]
    return float(radii[0])


def staying_labels(run: Results, radius: ArrayLike, method: Method) -> Ints:
    """How many labels of all images surely stay, as a promise about the test set, (radii,)."""
    counts = run.certificates.counts(method, np.atleast_1d(radius))
    return surely_staying(counts, run.certificates.alpha).astype(np.int64)


def closing_sentence(run: Results, radius: float | None = None, method: Method | None = None) -> str:
    """What holds of all images together, in counts, which need no rounding; by default at the first radius."""
    proved, at = run.certificates, first_radius(run) if radius is None else radius
    total, images = len(proved.labels.values), int(np.count_nonzero(proved.labels.lengths))
    kind = "true" if proved.labelled else "predicted"
    stay, where = int(staying_labels(run, at, method or proved.methods[0])[0]), proved.noise.radius_words(at)
    sure = "without exception" if proved.noise.enumerated else f"with probability {plain(1 - TEST_SET_ERROR)}"
    return f"At {where} at least {stay} of the {total} {kind} labels of these {images} images stay, {sure} (test set)."


def population_sentence(run: Results, method: Method | None = None) -> str:
    """What holds of images like these at the first radius; empty where bands are not requested."""
    proved = run.certificates
    if not proved.config.bands or not any(proved.labels):
        return ""
    counts = proved.counts(method or proved.methods[0], np.array([first_radius(run)]))
    bands, kind = mean_bands(counts, proved.config.bands, proved.alpha), "true" if proved.labelled else "predicted"
    return (
        f"Of images like these at least {percent(float(bands.population[1][0]))} of an image\u2019s {kind} labels stay "
        f"on average, with {plain_percent(bands.level)} % confidence, if these are a random sample (population)."
    )


def promises(run: Results, method: Method | None = None) -> str:
    """What holds of the test set and of the population, at the first radius and by default by the first method."""
    return f"{closing_sentence(run, method=method)} {population_sentence(run, method)}".strip()


def label_method(run: Results) -> str:
    """The method that proves what is claimed of single labels."""
    proved = run.certificates
    if not proved.labelled and is_one_claim(proved.config.rule, proved.methods):
        return proved.methods[0]
    if proved.noise.enumerated:
        return "enumerated"
    fixed = run.provenance.get("stops") is None and not run.provenance.get("earlier_draws")
    return "joint" if fixed else "betting"


def label_images(labelled: bool) -> str:
    """Which images the fraction of a label is of."""
    return "that have it" if labelled else "for which pilot draws chose it"


def whose_labels(labelled: bool) -> dict[str, str]:
    """The labels that the headline's fraction is of, in each averaging."""
    kind = "true" if labelled else "predicted"
    return {"mean": f"of an image\u2019s {kind} labels, on average,", "pooled": f"of all {kind} labels together"}


def sentence(words: str) -> str:
    """The words as a sentence."""
    return f"{words[0].upper()}{words[1:]}."


def attack_words(attacks: Attacks) -> str:
    """The smoothed classifier that was attacked, the images, and how the attacks were evaluated."""
    config = attacks.config
    words = [*config.rule.words.values()]
    if not attacks.exact:
        words += [f"n {'up to' if attacks.adaptive else '='} {config.draws}", f"α = {plain(config.alpha)}"]
    words.append(attacks.noise.words)
    missing = left_out_words(attacks.labelled, attacks.without_labels, attacks.failed)
    images = f"Mean over {len(attacks.images)} images{f' ({missing} left out)' if missing else ''}"
    how = f"all {attacks.draws} bands" if attacks.exact else f"{attacks.draws} fresh draws"
    return f"{', '.join(words)}. {images}; {how} evaluate each perturbation"


def verdict(attacks: Attacks) -> str:
    """How many certificates were broken out of how many that could be, and what weakens this, in one sentence."""
    broken = {method: len(attacks.broken(method)) for method in attacks.methods}
    seeming = {method: len(attacks.broken(method, surely=False)) - sure for method, sure in broken.items()}
    undecidable = {method: len(attacks.undecidable(method)) for method in attacks.methods}
    groups: dict[tuple[int, int], list[str]] = {}  # of methods, by their numbers of broken and of tested images
    for method, count in broken.items():
        groups.setdefault((count, len(attacks.tested(method))), []).append(method)
    head = "certificates were broken" if any(broken.values()) else "no certificate was broken"
    listed = ", ".join(f"{count} of {tested} ({', '.join(methods)})" for (count, tested), methods in groups.items())
    found = f"{head}: " + listed.replace(" (", " certified images, attacked inside their radius (", 1)
    if not any(tested for _, tested in groups):
        found = f"no certificate was tested: none of {len(attacks.images)} images was attacked inside its radius"
    clauses = [
        found,
        _counts_after("more seem broken, but there are too few draws to confirm it", seeming),
        _counts_after(f"{attacks.draws} draws could not confirm these as broken in any case", undecidable),
        f"gradients were 0 or not finite at some steps of {attacks.flat} images" if attacks.flat else "",
    ]
    return "; ".join(filter(None, clauses))


def _counts_after(words: str, counts: Mapping[Method, int]) -> str:
    listed = ", ".join(f"{count} ({method})" for method, count in counts.items() if count > 0)
    return f"{words}: {listed}" if listed else ""
