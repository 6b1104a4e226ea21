"""`multiguard attack`: how many labels attacks bring down, beside how many are proved to stay."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from multiguard.cli.command import typed
from multiguard.cli.options import Device, Force, Mean, Output, Std, Weights
from multiguard.cli.progress import progress_bar
from multiguard.cli.terminal import PlainConsole, echo

if TYPE_CHECKING:
    from multiguard.evaluate import Attacks
    from multiguard.pipeline.attacking import AttackJob

_Run = Annotated[Path, Argument(help="A run folder, or a certificates folder.")]
_Out = Annotated[Path | None, Option(help="The attack folder to write [attack beside the certificates].")]
_Attack = Annotated[str, Option(help="pgd (gradients through the noise), random (needs none) or pgd,random.")]
_Radius = Annotated[list[float] | None, Option(help="A norm allowed; again for more [sigma/2, sigma ... 3 sigma].")]
_Own = Annotated[bool, Option("--own-radii", help="Attack each image at its own certified radii, too.")]
_Images = Annotated[int | None, Option(help="Attack a random part of so many images [all that have labels].")]
_Steps = Annotated[int, Option(help="Gradient steps of each start.")]
_Copies = Annotated[int, Option(help="Noisy copies that a gradient, or a try, is averaged over.")]
_Starts = Annotated[int, Option(help="Starts of pgd at each radius; all but the first are random.")]
_Tries = Annotated[int, Option(help="Changes that the random search tries at each radius.")]
_Draws = Annotated[int, Option(help="Fresh noisy copies that judge each change.")]
_Beta = Annotated[float, Option(help="The probability, an image, of calling a certificate broken that is not.")]
_Box = Annotated[bool, Option("--box", help="Keep changed images in [0, 1]; certificates hold without.")]
_Seed = Annotated[int, Option(help="Decides every random choice.")]
_Model = Annotated[str | None, Option(help="The model that was voted with, if it lies elsewhere now.")]
_Labels = Annotated[Path | None, Option(help="With --model: a label name a line, in the order of the scores.")]
_Root = Annotated[Path | None, Option(help="Where the images lie [where they were voted on].")]

_BROKEN = 1


def attack_command(
    run: _Run,
    out: _Out = None,
    attack: _Attack = "pgd,random",
    radius: _Radius = None,
    own_radii: _Own = False,
    images: _Images = None,
    steps: _Steps = 20,
    copies: _Copies = 8,
    starts: _Starts = 2,
    tries: _Tries = 60,
    draws: _Draws = 500,
    beta: _Beta = 0.001,
    box: _Box = False,
    seed: _Seed = 0,
    model: _Model = None,
    labels: _Labels = None,
    weights: Weights = None,
    output: Output = None,
    mean: Mean = None,
    std: Std = None,
    root: _Root = None,
    device: Device = None,
    force: Force = False,
) -> None:
    """Attack the smoothed classifier and draw what is reached beside what is certified.

    Exit code 1 where a certificate was broken: other draws than the attack's own say so with confidence 1 - beta. What
    no attack found may still be there: only the certificate speaks of every change.

    Example: multiguard attack runs/certificates --images 100 --out runs/attack
    """
    _attack(**locals())


def _attack(*, run: Path, out: Path | None, **rest: Any) -> None:
    from multiguard.pipeline.attacking import prepare_attack
    from multiguard.pipeline.found import find_certificates

    certificates = find_certificates(run).main
    ready = prepare_attack(_job(certificates, out or certificates.parent / "attack", rest))
    for note in ready.notes:
        echo(f"note: {note}")
    with progress_bar("images") as progress:
        written = ready.attack(lambda done, total: progress("attacking", done, total))
    _show(written.attacks)
    echo(f"attack.parquet, the table and the figure: {ready.job.out}")
    if any(written.attacks.broken(method) for method in written.attacks.methods):
        raise typer.Exit(_BROKEN)


def _job(certificates: Path, out: Path, said: dict[str, Any]) -> "AttackJob":
    from multiguard.attack import AttackPlan
    from multiguard.pipeline.attacking import AttackJob

    names = tuple(name.strip() for name in said["attack"].split(","))
    effort = {name: said[name] for name in ("steps", "copies", "starts", "tries", "box", "seed")}
    plan = AttackPlan(attacks=names, judge_draws=said["draws"], **effort)
    part = _own_model(said)
    chosen = {name: said[name] for name in ("own_radii", "images", "beta", "root", "device", "force")}
    radii = tuple(said["radius"] or ())
    return AttackJob(certificates, out, plan, radii, model=part, command=typed(), **chosen)


def _own_model(said: dict[str, Any]) -> Any:
    """The model that the user names; without one nothing may describe it: a word without an effect would mislead."""
    from multiguard.cli.vote import model_part
    from multiguard.errors import InvalidInputError

    if said["model"] is not None:
        return model_part(said["model"], said)
    for name in ("labels", "weights", "output", "mean", "std"):
        if said[name] is not None:
            raise InvalidInputError(f"--{name} describes the model that --model names; give --model, too, or neither")
    return None


def _show(attacks: "Attacks") -> None:
    """The averages, and whether a certificate was broken."""
    from multiguard.cli.attack_table import show_curves
    from multiguard.report.attack_words import asked_words, verdict

    console = PlainConsole()
    console.print(f"{asked_words(attacks)}")
    console.print()
    show_curves(attacks, console)
    console.print()
    console.print(verdict(attacks))
    for method in attacks.methods:
        _show_broken(attacks, method, console)


def _show_broken(attacks: "Attacks", method: Any, console: Any) -> None:
    """What is sure, with how likely chance makes it; and what only seems so."""
    broken, seeming = attacks.broken(method), set(attacks.broken(method, surely=False))
    if broken:
        console.print(
            f"{method}: {', '.join(broken)}; if every certificate is sound, so many or more are broken with "
            f"probability {attacks.chance(len(broken), method):.2g} at most"
        )
    if doubtful := seeming - set(broken):
        console.print(f"{method}: not sure, these only seem broken: {', '.join(sorted(doubtful))}")
