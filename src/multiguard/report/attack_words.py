"""The words of attacks that the figure and the table share."""

from multiguard.evaluate import Attacks, Setting
from multiguard.evaluate.attacked import BEST
from multiguard.report.rounding import plain

_NAMES = {"pgd": "gradients (PGD)", "random": "random search", BEST: "best of all attacks"}


def attack_name(name: str) -> str:
    """What people call an attack."""
    return _NAMES.get(name, name)


def asked_words(attacks: Attacks) -> str:
    """Which smoothed classifier was attacked, what was proved of it and how the attack was judged."""
    setting = attacks.setting
    own = (
        f"k′ = {setting.k_prime}, k = {setting.k}"
        if isinstance(setting, Setting)
        else f"t = {plain(setting.threshold)}"
    )
    drawn = f"n {'up to' if attacks.adaptive else '='} {setting.n}"
    return (
        f"{own}, {drawn}, α = {plain(setting.alpha)}, σ = {plain(attacks.sigma)}. "
        f"Mean over {len(attacks.pictures)} pictures{_left_out(attacks)}; {attacks.draws} fresh draws judge each change"
    )


def _left_out(attacks: Attacks) -> str:
    """How many pictures were not attacked because there was nothing to attack; empty where there are none."""
    unlabelled = "without labels" if attacks.labelled else "without a predicted label"
    counts = {unlabelled: attacks.without_labels, "that could not be voted on": attacks.failed}
    told = " and ".join(f"{count} {why}" for why, count in counts.items() if count)
    return f" ({told} left out)" if told else ""


def verdict(attacks: Attacks) -> str:
    """How many certificates were broken, in one sentence."""
    counts = {method: len(attacks.broken(method)) for method in attacks.methods}
    total = len(attacks.pictures)
    if not any(counts.values()):
        return f"0 of {total} pictures: no certificate was broken ({', '.join(attacks.methods)})"
    told = ", ".join(f"{method} {count}" for method, count in counts.items() if count)
    return f"certificates were broken, of {total} pictures: {told}"
