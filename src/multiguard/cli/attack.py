"""`multiguard attack`: how many labels attacks remove, and how many are certified to stay."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from multiguard.attack.config import AttackConfig
from multiguard.cli.console import PlainConsole, echo, print_line, progress_bar
from multiguard.cli.options import Fields, Force, typed_command, with_options
from multiguard.io.config import from_tree
from multiguard.models.config import ModelConfig

_Run = Annotated[Path, Argument(help="A run folder, or a certificates folder.")]
_Out = Annotated[Path | None, Option(help="The attack folder to write [attack, next to the certificates].")]
_Attack = Annotated[AttackConfig, Fields(("attacks", "radii", "images", "draws"))]
_MODEL_HELP = {"spec": "The model that voted, if it is elsewhere now."}
_Model = Annotated[dict[str, Any], Fields(("spec", "output"), ModelConfig, _MODEL_HELP)]
_BROKEN = 1


@with_options
def attack_command(run: _Run, config: _Attack, model: _Model, out: _Out = None, force: Force = False) -> None:
    """Attack the smoothed classifier and compare what attacks reach with what is certified.

    The noise decides what the attacker may do: an l2-norm, an l1-norm, a number of pixels, or one patch.

    Exit code 1 if a certificate was broken: draws other than the attack's own say so with confidence 1 - beta. Attacks
    may miss what exists: only the certificate covers every perturbation.

    Example: multiguard attack runs/certificates --images 100 --out runs/attack
    """
    from multiguard.attack import attack as run_attack
    from multiguard.cli.score_table import show_attack_curves
    from multiguard.io.files import check_inside
    from multiguard.report.words import attack_words, verdict
    from multiguard.run.arms import find_certificates, path_in_run

    named = from_tree(ModelConfig, model) if model else None
    certificates = find_certificates(run)[""]
    target = out or path_in_run(certificates, "attack")
    if target.parent == certificates.parent:
        check_inside(certificates.parent, target)
    search = partial(run_attack, config, certificates, model=named, out=target, command=typed_command(), force=force)
    with progress_bar("images") as progress:
        attacks = search(progress=progress, on_note=lambda note: print_line(f"note: {note}"))
    console = PlainConsole()
    console.print(attack_words(attacks))
    console.print(f"{attacks.noise.unit_words}\n")
    show_attack_curves(attacks, console)
    console.print(f"\n{verdict(attacks)}")
    for method in attacks.methods:
        broken, seeming = attacks.broken(method), set(attacks.broken(method, surely=False))
        if broken:
            console.print(
                f"{method}: {', '.join(broken)}; if every certificate is sound, this many or more are broken with "
                f"probability {attacks.chance(len(broken), method):.2g} at most"
            )
        if doubtful := seeming - set(broken):
            console.print(f"{method}: not certain, these only seem broken: {', '.join(sorted(doubtful))}")
    echo(f"attack.parquet, the table and the figure: {target}")
    if any(attacks.broken(method) for method in attacks.methods):
        raise typer.Exit(_BROKEN)
