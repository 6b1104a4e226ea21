"""Options are made from config dataclasses: names, types, defaults and help come from their fields."""

from typing import Annotated, Any, Literal

import pytest
from typer import Option, Typer
from typer.testing import CliRunner

from multiguard.cli.options import Fields, with_options
from multiguard.errors import InvalidInputError
from multiguard.io.config import Config, Count, described


class Sampling(Config, frozen=True):
    model: Annotated[str, described("The model.")]
    draws: Annotated[Count | Literal["adaptive"], described("How many draws.")] = 100
    radii: Annotated[tuple[float, ...], described("A radius.", "radius")] = ()
    rule: Annotated[Literal["top-k", "threshold"], described("Which rule.")] = "top-k"
    labelled: Annotated[bool, described("Without labels.", "no-labels")] = True
    clamp: Annotated[bool, described("Clamp to [0, 1] first.")] = False
    flip: Annotated[bool | None, described("Mirror [yes].")] = None
    noise_seed: Annotated[int, described("Seed of the noise.")] = 0


class Sample(Config, frozen=True):
    images: Annotated[int | None, described("How many [all].")] = None
    seed: Annotated[int, described("Seed of the sample.")] = 0


def run(*arguments):
    """The configs that a command gets for these arguments, and the result of running it."""
    received = []
    app = Typer(rich_markup_mode=None, pretty_exceptions_enable=False)

    @app.command()
    @with_options
    def command(
        sampling: Sampling,
        sample: Annotated[dict[str, Any], Fields(("images", "seed"), Sample, {"images": "How many images."})],
        force: Annotated[bool, Option("--force", help="Replace.")] = False,
    ) -> None:
        """Sample."""
        received.extend([sampling, sample, force])

    return received, CliRunner().invoke(app, [str(one) for one in arguments], env={"COLUMNS": "200"})


def test_defaults():
    """An option that was not typed leaves the config's own default, and is absent from a dict."""
    received, result = run("--model", "m")
    assert result.exit_code == 0, result.output
    assert received == [Sampling("m"), {}, False]


def test_typed_values():
    """Words, numbers, lists and flags reach the fields in their types."""
    typed = ["--model", "m", "--draws", "adaptive", "--radius", "0.5,1", "--radius", 2, "--rule", "threshold"]
    received, _ = run(*typed, "--no-labels", "--clamp", "--no-flip", "--noise-seed", 3, "--images", 7, "--force")
    expected = Sampling("m", "adaptive", (0.5, 1.0, 2.0), "threshold", False, True, False, 3)
    assert received == [expected, {"images": 7}, True]
    assert run("--model", "m", "--draws", 5)[0][0].draws == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--draws", "many"], "--draws is 'many'; expected a whole number of 1 or more, or adaptive"),
        (["--draws", "0"], "--draws is 0; expected a whole number of 1 or more, or adaptive"),
        (["--radius", "0.5,x"], "--radius is 'x'; expected a number"),
        (["--rule", "treshold"], "--rule: unknown value 'treshold': did you mean 'threshold'?"),
    ],
)
def test_option_values_refused(arguments, message):
    """A value that a field does not take raises one line."""
    _, result = run("--model", "m", *arguments)
    assert isinstance(result.exception, InvalidInputError)
    assert str(result.exception) == message


def test_shared_option():
    """One option never sets the fields of two configs: a seed that samples images would be that of the noise, too."""
    with pytest.raises(TypeError, match="command: two fields have the option --images; rename one of them"):

        @with_options
        def command(one: Sample, other: Annotated[dict[str, Any], Fields(("images",), Sample)]) -> None:
            """Sample twice."""


def test_required_option():
    """A field without a default is a required option."""
    _, result = run()
    assert result.exit_code == 2
    assert "--model" in result.output


def test_help():
    """Every option has its help text, and its default in brackets."""
    words = " ".join(run("--help")[1].output.split())
    for text in (
        "The model. [required]",
        "How many draws [100].",
        "Which rule [top-k].",
        "Mirror [yes].",
        "Seed of the noise [0].",
        "How many images.",
        "top-k|threshold",
        "--flip / --no-flip",
    ):
        assert text in words


def test_settings():
    """A field without an option is set by its name; any other name is refused."""
    received = []
    app = Typer(rich_markup_mode=None, pretty_exceptions_enable=False)

    @app.command()
    @with_options
    def command(
        sampling: Annotated[Sampling, Fields(("model",))],
        sample: Annotated[dict[str, Any], Fields(("images",), Sample, others=("seed",))],
    ) -> None:
        """Sample."""
        received.extend([sampling, sample])

    def settle(*texts):
        words = [word for text in texts for word in ("--set", text)]
        return CliRunner().invoke(app, ["--model", "m", *words]).exception

    assert settle("radii=0.5,1", "flip=false", "draws=5", "labelled=false", "seed=3", "draws=7") is None
    assert received == [Sampling("m", 7, (0.5, 1.0), labelled=False, flip=False), {"seed": 3}]
    for text, message in (
        ("seeds=3", "--set seeds=3: unknown setting 'seeds': did you mean 'seed'?"),
        ("images=3", "--set images=3: unknown setting 'images'"),
        ("draws", "--set draws: expected NAME=VALUE"),
        ("draws=0", "draws is 0; expected a whole number of 1 or more, or adaptive"),
        ("radii=x", "radii is 'x'; expected a number"),
    ):
        assert str(settle(text)).startswith(message)
