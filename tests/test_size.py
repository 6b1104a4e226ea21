"""How large the house is: `python tests/test_size.py` prints it, and what users meet has limits."""

import ast
import sys
from collections import Counter
from pathlib import Path

import typer

from multiguard.cli.main import app

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "multiguard"
RECORDS = ("Struct", "Config", "NamedTuple", "TypedDict")


def options() -> dict[str, list[str]]:
    """The options of each command, without --help."""
    group = typer.main.get_command(app)
    commands = {name: group.get_command(None, name) for name in group.list_commands(None)}
    return {
        name: [one.opts[0] for one in command.params if one.param_type_name == "option"]
        for name, command in commands.items()
    }


def modules() -> list[Path]:
    """The modules with something in them; an __init__ only names what is elsewhere."""
    return [path for path in SOURCE.rglob("*.py") if path.name not in ("__init__.py", "__main__.py")]


def records() -> Counter[str]:
    """The number of dataclasses, structs and named tuples of each room."""
    found = Counter()
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            marks = [*node.decorator_list, *node.bases] if isinstance(node, ast.ClassDef) else []
            if any("dataclass" in ast.unparse(one) or ast.unparse(one).endswith(RECORDS) for one in marks):
                found[path.relative_to(SOURCE).parts[0]] += 1
    return found


def lines(folder: Path) -> int:
    """The lines of Python in a folder."""
    return sum(len(path.read_text().splitlines()) for path in folder.rglob("*.py"))


def test_commands():
    """Eleven commands, and no more options than a person can look through."""
    found = options()
    assert len(found) == 11
    assert sum(map(len, found.values())) <= 120


def test_house():
    """The house does not grow: what a feature adds, something else gives back. These numbers only fall."""
    assert len(modules()) <= 125
    assert lines(SOURCE) <= 27_450
    assert records().total() <= 102


def test_module_names():
    """One module of a name; only each room's configs are in its `config`, and each command is in `cli`."""
    names = Counter(path.stem for path in modules() if path.parent.name != "cli")
    assert [name for name, count in names.items() if count > 1] == ["config"]


def table() -> str:
    """All counts, a line per room."""
    kinds, typed = records(), options()
    rows = [f"{len(modules())} modules, {lines(SOURCE)} lines; {lines(ROOT / 'tests')} lines of tests"]
    for room in sorted(path for path in SOURCE.iterdir() if (path / "__init__.py").exists()):
        tests = lines(ROOT / "tests" / room.name)
        rows.append(f"  {room.name}: {lines(room)} lines, {kinds[room.name]} records; {tests} lines of tests")
    rows.append(f"{kinds.total()} dataclasses, structs and named tuples")
    rows.append(f"{len(typed)} commands, {sum(map(len, typed.values()))} options")
    rows += [f"  {name}: {len(each)}" for name, each in typed.items()]
    return "\n".join(rows)


if __name__ == "__main__":
    sys.stdout.write(f"{table()}\n")
