"""The drawing of the rooms in CONTRIBUTING.md is what the code imports."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "gpumon"


def drawn_levels() -> list[set[str]]:
    """The rooms of the drawing, from the top to the bottom."""
    drawing = re.search(r"```\n(cli -> .*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    assert drawing is not None
    return [set(re.findall(r"\w+", level)) for level in drawing[1].split("->")]


def imported(path: Path) -> Iterator[str]:
    """The rooms that a module imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        yield from (name.split(".")[1] for name in names if name.startswith("gpumon."))


def test_every_import_points_down_in_the_drawing() -> None:
    level_of = {room: number for number, rooms in enumerate(drawn_levels()) for room in rooms}
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert level_of.keys() == rooms
    upward = {
        (room, other)
        for room in rooms
        for path in (PACKAGE / room).rglob("*.py")
        for other in imported(path)
        if other in rooms and other != room and level_of[other] <= level_of[room]
    }
    assert upward == set()
