"""The drawing of the rooms in CONTRIBUTING.md is what the code imports."""

import re
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "gpumon"
IMPORT: Final = re.compile(r"^ *(?:from (gpumon[\w.]*) import (\([^)]*\)|.*)|import (gpumon\.[\w.]+))", re.MULTILINE)


def drawn_levels() -> list[set[str]]:
    """The rooms of the drawing, from the top to the bottom."""
    drawing = re.search(r"```\n(cli -> .*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    assert drawing is not None
    return [set(re.findall(r"\w+", level)) for level in drawing[1].split("->")]


@cache
def imported(path: Path) -> set[str]:
    """What a module imports of gpumon, also inside functions and for types; a parser takes seconds for all modules."""
    names = set()
    for module, listed, one in IMPORT.findall(path.read_text()):
        members = re.findall(r"\w+(?: as \w+)?", re.sub(r"#[^\n]*", "", listed))
        names |= {module or one, *(f"{module}.{member.split()[0]}" for member in members)}
    return names


def test_every_import_points_down_in_the_drawing() -> None:
    level_of = {room: number for number, rooms in enumerate(drawn_levels()) for room in rooms}
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert level_of.keys() == rooms
    upward = {
        (room, other)
        for room in rooms
        for path in (PACKAGE / room).rglob("*.py")
        for other in {name.split(".")[1] for name in imported(path) if name.startswith("gpumon.")}
        if other in rooms and other != room and level_of[other] <= level_of[room]
    }
    assert upward == set()


def test_modules_do_not_import_each_other() -> None:
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in PACKAGE.rglob("*.py")
    }
    imports = {name: imported(path) & modules.keys() - {name} for name, path in modules.items()}
    while leaves := [name for name, others in imports.items() if not others & imports.keys()]:
        for name in leaves:
            del imports[name]
    assert not imports, "these modules import each other, or modules that do"
