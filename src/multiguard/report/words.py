"""What was asked of a run, in the words that figures, tables and the page share."""

from multiguard.evaluate import Curve, Setting
from multiguard.evaluate.failed import failed_words as failed_of
from multiguard.report.rounding import plain
from multiguard.report.study import Study
from multiguard.results import CertificatesFolder


def setting_words(run: CertificatesFolder) -> dict[str, str]:
    """What the run was asked, by the names of the parameters, such as {"k": "k = 10"}."""
    setting, sigma = run.certificates.setting, run.certificates.sigma
    if isinstance(setting, Setting):
        own = {"k_prime": f"k′ = {setting.k_prime}", "k": f"k = {setting.k}"}
    else:
        own = {"threshold": f"t = {plain(setting.threshold)}"}
    return {**own, "n": draws_words(run), "alpha": f"α = {plain(setting.alpha)}", "sigma": f"σ = {plain(sigma)}"}


def draws_words(run: CertificatesFolder) -> str:
    """How many draws an image took."""
    setting = run.certificates.setting
    if run.provenance.get("looks") is None:
        return f"n = {setting.n}"
    return f"n up to {setting.n} ({mean_draws(run)} on average)"


def mean_draws(run: CertificatesFolder) -> str:
    """How many draws the images that are counted took on average, as the run's curves tell."""
    own = next(curve for curve in run.curves if curve.setting == run.certificates.setting)
    return plain(round(own.mean_draws, 1))


def left_out(study: Study, curve: Curve) -> str:
    """How many images the averages leave out, and why; empty where there are none."""
    unlabelled = "without labels" if study.labelled else "without a predicted label"
    counts = {unlabelled: curve.scores.without_labels, "that could not be voted on": curve.failed}
    return " and ".join(f"{count} {why}" for why, count in counts.items() if count)


def failed_words(run: CertificatesFolder) -> str:
    """How many images could not be voted on, as a sentence; empty where all could."""
    failed, voted = len(run.certificates.failures), len(run.certificates.ids)
    words = failed_of(failed, failed + voted)
    return f"{words}." if words else ""
