"""The text files next to this module: one row per line, without comments and blank lines."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path


@cache
def table(name: str) -> Sequence[str]:
    """The rows of the file with a name."""
    text = Path(__file__).with_name(f"{name}.txt").read_text("utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]
