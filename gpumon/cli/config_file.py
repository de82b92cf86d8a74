"""The configuration file as text and as TOML. Reading it neither blocks nor takes much memory, whatever it contains."""

import io
import os
import re
import stat
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

from gpumon.core.ownership import ownership_problem
from gpumon.core.text import safe_text

MAX_BYTES: Final = 64 << 10
_MAX_REASON: Final = 100
_POSITION: Final = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)")
_TABLE_HEADER: Final = re.compile(r"\s*\[+([^\[\]]+)\]")

Toml = dict[str, Any]


class Fault(NamedTuple):
    """What is wrong, in a sentence, and in which line; line 0 if it is not known."""

    reason: str
    line: int = 0


class UnusableFileError(Exception):
    """The complete file cannot be used."""

    def __init__(self, reason: str, line: int = 0, remedy: str = "") -> None:
        super().__init__(reason)
        self.fault = Fault(reason, line)
        self.consequence = f"The defaults are used. {remedy}".rstrip()


def config_path() -> Path | None:
    """The path of the file; None for a user without a home folder."""
    base = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    if base.is_absolute():
        return base / "gpumon" / "config.toml"
    try:
        return Path.home() / ".config" / "gpumon" / "config.toml"
    except RuntimeError:
        return None


def read_text(path: Path) -> str:
    """The text of the file; empty if there is no file.

    Raises:
        UnusableFileError: The file cannot be read, is too large, or belongs to another user.
    """
    try:
        with io.FileIO(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UnusableFileError("Not a regular file.")
            problem = ownership_problem(path)  # the file of another user could name a program to run as Python
            if problem is not None:
                raise UnusableFileError(problem.reason, remedy=problem.remedy)
            data = file.read(MAX_BYTES + 1) or b""
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise UnusableFileError(f"{os.strerror(error.errno or 0)}.") from None
    if len(data) > MAX_BYTES:
        raise UnusableFileError(f"The file is larger than {MAX_BYTES >> 10} KiB.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnusableFileError("The file is not UTF-8 text.", data.count(b"\n", 0, error.start) + 1) from None


def parse(text: str) -> Toml:
    """Parse TOML.

    Raises:
        UnusableFileError: The text is not TOML.
    """
    if not text.strip():
        return {}
    if sys.version_info >= (3, 11):  # imported late: most users have no file
        import tomllib
    else:
        import tomli as tomllib
    try:
        document: Toml = tomllib.loads(text)
    except RecursionError:
        raise UnusableFileError("Tables or lists are nested too deeply.") from None
    except ValueError as error:  # also from int(), which limits the number of digits
        message = str(error)
        position = _POSITION.search(message)
        line = int(position[1] or text.count("\n") + 1) if position else 0
        raise UnusableFileError(f"{safe_text(_POSITION.sub('', message), _MAX_REASON)}.", line) from None
    return document


def line_of(key: str, text: str) -> int:
    """The line of a key such as ``record.interval``; 0 if the file writes it in an unusual way."""
    current_table = ""
    for number, line in enumerate(text.splitlines(), 1):
        header = _TABLE_HEADER.match(line)
        if header is not None:
            current_table = line_key = header[1].strip()
        else:
            name = re.sub(r"[\s\"']", "", line.partition("=")[0])
            line_key = f"{current_table}.{name}" if current_table else name
        if line_key == key or (header is None and key.startswith(f"{line_key}.")):
            return number
    return 0
