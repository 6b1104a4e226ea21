"""From a smoothed classifier and data in Python to results, by way of a run folder."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from multiguard.certify import Method, Noise, Rule
from multiguard.certify.arguments import check_alpha
from multiguard.errors import InvalidInputError
from multiguard.evaluate import CertifyConfig, LabelSource, Results, certify_votes
from multiguard.evaluate.methods import check_methods
from multiguard.io.folders import check_content
from multiguard.io.ranks import this_rank
from multiguard.smooth import AdaptivePlan, Smoother
from multiguard.smooth.dataset import OnError, VoteRun, open_data
from multiguard.smooth.sanity import data_warnings
from multiguard.votes import read_votes

Report = Callable[[str, int, int], None]
VOTES, CERTIFICATES = "votes", "certificates"  # in the run folder


def certify_data(
    smoother: Smoother,
    data: object,
    rule: Rule,
    *,
    alpha: float,
    methods: Sequence[Method] | None,
    draws: int | None,
    max_draws: int,
    radii: Sequence[float] | None,
    pilot_draws: int,
    out: str | Path | None,
    noise_seed: int | None,
    on_error: OnError,
    progress: bool,
) -> Results:
    """What `Smoother.certify` returns, by the steps of `multiguard vote` and `multiguard certify`."""
    if (rank := this_rank()).count > 1:
        raise InvalidInputError(
            f"Smoother.certify runs in one process, and this is one of {rank.count} (WORLD_SIZE); vote in several with "
            "vote_dataset or `multiguard vote`, then certify the votes in one"
        )
    if isinstance(methods, str):
        raise InvalidInputError(f"methods is the text {methods!r}; give a list of methods, such as methods=['joint']")
    bands = smoother.noise.enumerated
    if draws is None and not bands and any(method != "betting" for method in methods or ()):
        raise InvalidInputError(
            f"methods is {list(methods or ())}, and only 'betting' holds where each input takes as many draws as it "
            "needs; give a fixed number of draws, such as draws=1000"
        )
    dataset = open_data(smoother, data)
    smoother.settings.check_rule(rule, len(dataset.label_names))
    if methods:
        check_methods(methods, rule, smoother.noise)
    check_alpha(alpha)
    labelled = getattr(dataset, "labelled", True)
    if labelled and (known := getattr(dataset, "labels", None)) is not None and not any(map(len, known)):
        raise InvalidInputError(
            f"none of the {len(dataset)} inputs has a label, so there is nothing to certify; give (X, None) to certify "
            "the labels that are predicted"
        )
    config = CertifyConfig(alpha=alpha, methods=tuple(methods or ())).with_rule(rule)
    plan = None if draws is not None or bands else _plan(rule, smoother.noise, alpha, max_draws, radii)
    pilots = 0 if labelled or bands else pilot_draws
    run = VoteRun(
        smoother,
        dataset,
        draws=draws,
        adaptive=plan,
        pilot_draws=pilots,
        labelled=labelled,
        noise_seed=noise_seed,
        on_error=on_error,
        resumable=out is not None,
    )
    for warning in data_warnings(run):
        warnings.warn(warning, stacklevel=3)
    source: LabelSource = "truth" if labelled else "pilot"
    with _progress_bars(progress) as report:
        voting = partial(report, "voting")
        if out is None:
            votes, where = run.votes(voting), None
        else:
            home, where = Path(out) / VOTES, Path(out) / CERTIFICATES
            check_content(home, "votes")
            run.write(home, progress=voting)
            votes = read_votes(home)
        results = certify_votes(config, votes, labels=source, out=where, force=True, progress=report)
    return replace(results, images=dataset)


def _plan(rule: Rule, noise: Noise, alpha: float, max_draws: int, radii: Sequence[float] | None) -> AdaptivePlan:
    """When an input stops."""
    wanted = noise.default_radii if radii is None else tuple(radii)
    return AdaptivePlan(rule, wanted, max_draws, alpha)


@contextmanager
def _progress_bars(show: bool) -> Iterator[Report]:
    """A function to call with (what is being done, done, total); silent where there is nothing to draw a bar on."""
    from rich.console import Console
    from rich.progress import Progress, TaskID

    console = Console()
    jupyter = console.is_jupyter and find_spec("ipywidgets") is not None
    if not show or not (jupyter or (console.is_terminal and not console.is_jupyter)):
        yield lambda doing, done, total: None
        return
    with Progress(console=console, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def report(doing: str, done: int, total: int) -> None:
            if doing not in tasks:
                tasks[doing] = bars.add_task(doing, total=total)
            bars.update(tasks[doing], completed=done)

        yield report
