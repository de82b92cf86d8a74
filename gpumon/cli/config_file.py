"""The text of the configuration file: where it is, whether it may be trusted, and where in it a key stands.

It is only ever read, and whatever it is, reading it neither waits nor takes much memory.
"""

import io
import os
import re
import stat
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

from gpumon.core.text import safe_text

MOST_BYTES: Final = 64 << 10
_ROOT: Final = 0
_PLACE: Final = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)")
_TABLE: Final = re.compile(r"\s*\[+([^\[\]]+)\]")
_LONGEST_REASON: Final = 100

Toml = dict[str, Any]


class Fault(NamedTuple):
    """What is wrong, in a sentence, and in which line; 0 where no line is to blame."""

    reason: str
    line: int = 0


class UnusableError(Exception):
    """Nothing in the file can be used."""

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(reason)
        self.fault = Fault(reason, line)


def config_path() -> Path | None:
    """Where the file is looked for; None for a user who has no home."""
    base = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    if base.is_absolute():
        return base / "gpumon" / "config.toml"
    try:
        return Path.home() / ".config" / "gpumon" / "config.toml"
    except RuntimeError:
        return None


def read_text(path: Path) -> str:
    """The file's text; empty if there is no file.

    Raises:
        UnusableError: It cannot be read, or is not a text of the user's own.
    """
    try:
        with io.FileIO(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            _check_owner(os.fstat(file.fileno()))
            data = file.read(MOST_BYTES + 1) or b""
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise UnusableError(f"{os.strerror(error.errno or 0)}.") from None
    if len(data) > MOST_BYTES:
        raise UnusableError(f"It is larger than {MOST_BYTES >> 10} KiB.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnusableError("It is not text in UTF-8.", data.count(b"\n", 0, error.start) + 1) from None


def parse(text: str) -> Toml:
    """What a text says.

    Raises:
        UnusableError: It is not TOML.
    """
    if not text.strip():
        return {}
    if sys.version_info >= (3, 11):  # late, as most users have no file
        import tomllib
    else:
        import tomli as tomllib
    try:
        document: Toml = tomllib.loads(text)
    except RecursionError:
        raise UnusableError("It is nested too deeply.") from None
    except ValueError as error:  # not only the parser's own: a number can be longer than int() takes
        said = str(error)
        place = _PLACE.search(said)
        line = int(place[1] or text.count("\n") + 1) if place else 0
        raise UnusableError(f"{safe_text(_PLACE.sub('', said), _LONGEST_REASON)}.", line) from None
    return document


def line_of(key: str, text: str) -> int:
    """In which line a key such as ``record.interval`` stands; 0 if it is written in an unusual way."""
    inside = ""
    for number, line in enumerate(text.splitlines(), 1):
        table = _TABLE.match(line)
        if table is not None:
            inside = found = table[1].strip()
        else:
            name = re.sub(r"[\s\"']", "", line.partition("=")[0])
            found = f"{inside}.{name}" if inside else name
        if found == key or (table is None and key.startswith(f"{found}.")):
            return number
    return 0


def _check_owner(found: os.stat_result) -> None:
    """A file of somebody else's could name an interpreter to be started."""
    if not stat.S_ISREG(found.st_mode):
        raise UnusableError("It is not a file.")
    if found.st_uid not in {_ROOT, os.geteuid()}:
        raise UnusableError(f"It belongs to another user (uid {found.st_uid}).")
