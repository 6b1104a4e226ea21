"""The words of attacks that the figure and the table share."""

from collections.abc import Mapping

from multiguard.certify import Method, TopK
from multiguard.evaluate import Attacks
from multiguard.evaluate.attacked import BEST
from multiguard.report.rounding import plain

_NAMES = {"pgd": "gradients (PGD)", "random": "random search", BEST: "best of all attacks"}


def attack_name(name: str) -> str:
    """What people call an attack."""
    return _NAMES.get(name, name)


def asked_words(attacks: Attacks) -> str:
    """Which smoothed classifier was attacked, what was proved of it and how the attack was judged."""
    config, rule = attacks.config, attacks.config.rule
    own = f"k′ = {rule.k_prime}, k = {rule.k}" if isinstance(rule, TopK) else f"t = {plain(rule.t)}"
    drawn = f"n {'up to' if attacks.adaptive else '='} {config.draws}"
    return (
        f"{own}, {drawn}, α = {plain(config.alpha)}, σ = {plain(attacks.sigma)}. "
        f"Mean over {len(attacks.images)} images{_left_out(attacks)}; {attacks.draws} fresh draws judge each change"
    )


def _left_out(attacks: Attacks) -> str:
    """How many images were not attacked because there was nothing to attack; empty where there are none."""
    unlabelled = "without labels" if attacks.labelled else "without a predicted label"
    counts = {unlabelled: attacks.without_labels, "that could not be voted on": attacks.failed}
    told = " and ".join(f"{count} {why}" for why, count in counts.items() if count)
    return f" ({told} left out)" if told else ""


def verdict(attacks: Attacks) -> str:
    """How many certificates were broken, of how many that could be: in one sentence, with what weakens it."""
    broken = {method: len(attacks.broken(method)) for method in attacks.methods}
    parts = [_of_tested(attacks, broken)]
    parts += [part for part in (_seeming(attacks, broken), _untold(attacks), _flat(attacks)) if part]
    return "; ".join(parts)


def _of_tested(attacks: Attacks, broken: Mapping[Method, int]) -> str:
    """For each count of broken and certified images the methods that have it."""
    alike: dict[tuple[int, int], list[str]] = {}
    for method, count in broken.items():
        alike.setdefault((count, len(attacks.tested(method))), []).append(method)
    if not any(tested for _, tested in alike):
        return f"no certificate was tested: of {len(attacks.images)} images none was attacked inside its radius"
    (first, *rest) = (f"{count} of {tested}" for count, tested in alike)
    first_methods, *other_methods = (f"({', '.join(methods)})" for methods in alike.values())
    head = "certificates were broken" if any(broken.values()) else "no certificate was broken"
    told = [f"{head}: {first} certified images, attacked inside their radius {first_methods}"]
    return ", ".join([*told, *(f"{each} {methods}" for each, methods in zip(rest, other_methods, strict=True))])


def _seeming(attacks: Attacks, broken: Mapping[Method, int]) -> str:
    """How many more seem broken by the estimates; empty where none do."""
    more = {method: len(attacks.broken(method, surely=False)) - sure for method, sure in broken.items()}
    told = ", ".join(f"{count} ({method})" for method, count in more.items() if count > 0)
    return f"more seem broken, and so few draws cannot tell: {told}" if told else ""


def _untold(attacks: Attacks) -> str:
    """How many certificates could not be found broken with so few draws; empty where all could."""
    told = ", ".join(
        f"{count} ({method})" for method, count in ((m, len(attacks.untold(m))) for m in attacks.methods) if count
    )
    return f"{attacks.draws} draws cannot find these broken, whatever they show: {told}" if told else ""


def _flat(attacks: Attacks) -> str:
    """At how many images gradients failed; empty where they never did."""
    return f"gradients were 0 or not finite at some steps of {attacks.flat} images" if attacks.flat else ""
