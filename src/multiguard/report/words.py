"""What was asked of a run, in the words that figures, tables and the page share."""

from multiguard.certify import TopK
from multiguard.evaluate import Curve
from multiguard.evaluate.scores import failed_words as failed_of
from multiguard.report.rounding import plain
from multiguard.report.study import Study
from multiguard.results import CertificatesFolder


def setting_words(run: CertificatesFolder) -> dict[str, str]:
    """What the run was asked, by the names of the parameters, such as {"k": "k = 10"}."""
    config, sigma = run.certificates.config, run.certificates.sigma
    if isinstance(config.rule, TopK):
        own = {"k_prime": f"k′ = {config.rule.k_prime}", "k": f"k = {config.rule.k}"}
    else:
        own = {"threshold": f"t = {plain(config.rule.t)}"}
    return {**own, "n": draws_words(run), "alpha": f"α = {plain(config.alpha)}", "sigma": f"σ = {plain(sigma)}"}


def draws_words(run: CertificatesFolder) -> str:
    """How many draws an image took."""
    config = run.certificates.config
    if run.provenance.get("looks") is None:
        return f"n = {config.draws}"
    return f"n up to {config.draws} ({mean_draws(run)} on average)"


def mean_draws(run: CertificatesFolder) -> str:
    """How many draws the images that are counted took on average, as the run's curves tell."""
    own = next(curve for curve in run.curves if curve.config == run.certificates.config)
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
