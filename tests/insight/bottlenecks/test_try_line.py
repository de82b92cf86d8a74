"""The experiment of a cause as a command line."""

import shlex

import pytest

from gpumon.core.text_table import table
from gpumon.insight.bottlenecks.causes import CAUSES
from gpumon.insight.bottlenecks.try_line import StartCommand, try_line


@pytest.mark.parametrize(
    ("kind", "value", "command", "settings", "sides"),
    [
        ("few_workers", "8", "python t.py --num_workers 4", {}, ("", "python t.py --num_workers 8")),
        ("few_workers", "8", "python t.py data.num_workers=4", {}, ("", "python t.py data.num_workers=8")),
        ("few_workers", "", "python t.py --workers 4", {}, None),
        ("few_workers", "8", "python t.py", {}, None),
        ("threads", "4", "t.py", {"OMP_NUM_THREADS": "1"}, ("OMP_NUM_THREADS=1 ", "OMP_NUM_THREADS=4 t.py")),
        ("debugging", "X_Y", "python t.py", {"X_Y": "1"}, ("X_Y=1 ", "env -u X_Y python t.py")),
        ("gc", "", "python t.py --workers 4", {}, None),
    ],
)
def test_a_change_is_written_where_a_command_can_express_it(
    kind: str, value: str, command: str, settings: dict[str, str], sides: tuple[str, str] | None
) -> None:
    text = try_line(kind, value, StartCommand(tuple(command.split())), settings)
    assert shlex.split(text) == ([] if sides is None else ["gpumon", "try", f"{sides[0]}{command}", sides[1]])


def test_the_line_moves_to_the_folder_and_quotes_words() -> None:
    start = StartCommand(("python", "a b.py", "--workers", "1"), "/data/x y")
    words = shlex.split(try_line("few_workers", "2", start, {}))
    assert words[2] == "cd '/data/x y' && python 'a b.py' --workers 1"


def test_every_row_names_a_cause() -> None:
    kinds = {rule.kind for rule in CAUSES}
    assert {row.split()[0] for row in table("gpumon.insight.bottlenecks", "try_changes")} <= kinds
