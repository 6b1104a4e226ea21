"""The parts of pages that are taken from the code: the help of commands, the settings, and a recipe."""

from importlib.resources import files
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

_COMMANDS, _SETTINGS, _RECIPE = "<!-- every command -->", "<!-- every setting -->", "<!-- recipe digits -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with what its marker stands for."""
    for marker, text in ((_COMMANDS, _all_help), (_SETTINGS, settings), (_RECIPE, _recipe)):
        if marker in markdown:
            markdown = markdown.replace(marker, text())
    return markdown


def _recipe() -> str:
    text = (files("multiguard") / "recipes" / "digits.yaml").read_text(encoding="utf-8")
    return f"```yaml\n{text}```"


def _all_help() -> str:
    from multiguard.cli.main import app

    top: Any = get_command(app)
    groups = {name: top.get_command(None, name) for name in top.list_commands(None)}
    names = [
        f"{name} {inner}".strip() for name, command in groups.items() for inner in getattr(command, "commands", {"": 0})
    ]
    return "\n\n".join(f"## multiguard {name}\n\n```text\n{_help(app, name)}\n```" for name in names)


def _help(app: Any, name: str) -> str:
    shown = CliRunner().invoke(app, [*name.split(), "--help"], prog_name="multiguard", env={"COLUMNS": "100"})
    if shown.exit_code != 0:
        raise RuntimeError(f"multiguard {name} --help failed: {shown.output}")
    return shown.output.strip()


def settings() -> str:
    """A table of the fields of each config, by the section of a recipe that they stand in."""
    from multiguard.attack.config import AttackConfig
    from multiguard.data import DataConfig
    from multiguard.evaluate import CertifyConfig
    from multiguard.evaluate.calibration import CalibrateConfig
    from multiguard.evaluate.config import SweepConfig
    from multiguard.models.config import ModelConfig
    from multiguard.report.config import ReportConfig
    from multiguard.serve.config import ServeConfig
    from multiguard.smooth.config import ClusterConfig, PredictConfig, VoteConfig
    from multiguard.train.config import TrainConfig
    from multiguard.verify.config import VerifyConfig

    configs = {
        "data": DataConfig,
        "model": ModelConfig,
        "train": TrainConfig,
        "vote": VoteConfig,
        "cluster": ClusterConfig,
        "certify": CertifyConfig,
        "sweep": SweepConfig,
        "calibrate": CalibrateConfig,
        "report": ReportConfig,
        "predict": PredictConfig,
        "serve": ServeConfig,
        "attack": AttackConfig,
        "verify": VerifyConfig,
    }
    return "\n\n".join(f"## {name}\n\n{_table(config)}" for name, config in configs.items())


def _table(config: Any) -> str:
    from msgspec import UNSET
    from msgspec.structs import fields

    from multiguard.io.config import described_as, field_types

    types = field_types(config)
    rows = ["| setting | default | meaning |", "|---|---|---|"]
    for field in fields(config):
        default = field.default_factory() if callable(field.default_factory) else field.default
        words, _ = described_as(types[field.name])
        shown = "" if field.required or default is None or default is UNSET else f"`{default}`"
        cells = [f"`{field.name}`", "required" if field.required else shown, words]
        rows.append("| " + " | ".join(cell.replace("|", "\\|").replace("[", "\\[") for cell in cells) + " |")
    return "\n".join(rows)
