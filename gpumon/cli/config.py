"""The configuration file: its entries set the options of the commands, as if they were given each time.

Reading the file neither blocks nor takes much memory, whatever the file contains. An entry that is not valid is ignored
and reported in one line; it is never an error.
"""

import io
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from gpumon.cli.options import Duration
from gpumon.core.ownership import ownership_problem
from gpumon.core.text import safe_text

SHARED: Final = ("interval", "theme", "mouse", "history", "speed")
"""Options at the top of the file, for every command that has them."""
ALERTS: Final = "alerts"
"""The table of alert thresholds."""
_FORMER_ALERTS: Final = "health"
"""The former name of that table."""
_ALERT_TABLES: Final = (_FORMER_ALERTS, ALERTS)
MAX_BYTES: Final = 64 << 10

_NOT_IN_FILE: Final = frozenset({"yes", "debug", "help", "version"})
"""Options that the file cannot set: a start next to other processes, for example, is confirmed each time."""
_TYPE_NAMES: Final[Mapping[type, str]] = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "a table",
}
_POSITION: Final = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)")
_TABLE_HEADER: Final = re.compile(r"\s*\[+([^\[\]]+)\]")
_MAX_REASON: Final = 100

Toml = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Config:
    """The content of the configuration file.

    Attributes:
        options: Value by parameter name, and a table of values per command: click's ``default_map``.
        alerts: Alert threshold by name.
        warning: What is wrong with the file, in one line; empty if nothing is.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    alerts: Mapping[str, float] = field(default_factory=dict)
    warning: str = ""


class _Entry(NamedTuple):
    """A key and its value; ``table`` is the name of a command or of the thresholds, and empty at the top."""

    table: str
    name: str
    value: object

    @property
    def key(self) -> str:
        """The dotted key."""
        return f"{self.table}.{self.name}" if self.table else self.name


class _Fault(NamedTuple):
    """What is wrong, in a sentence, and in which line; line 0 if it is not known."""

    reason: str
    line: int = 0


class _UnknownKeyError(ValueError):
    """The file names an option that does not exist."""


class _UnusableFileError(Exception):
    """The complete file cannot be used."""

    def __init__(self, reason: str, line: int = 0, remedy: str = "") -> None:
        super().__init__(reason)
        self.fault = _Fault(reason, line)
        self.consequence = f"The defaults are used. {remedy}".rstrip()


def load_config(commands: click.Group) -> Config:
    """Read the user's file: options of the given commands, and alert thresholds."""
    path = _config_path()
    if path is None:
        return Config()
    try:
        text = _read_text(path)
        document = _parse(text)
    except _UnusableFileError as error:
        return Config(warning=_warning(path, error.fault, error.consequence))
    known = _Known(commands)
    invalid: list[tuple[_Entry, Exception]] = []
    options: Toml = {}
    alerts: dict[str, float] = {}
    for entry in _entries(document, known):
        try:
            if entry.table in _ALERT_TABLES:
                alerts[entry.name] = _threshold(entry)
            else:
                option = known.option(entry)
                values = options.setdefault(entry.table, {}) if entry.table else options
                values[str(option.name)] = _option_value(option, entry.value)
        except (ValueError, click.BadParameter) as error:
            invalid.append((entry, error))
    fault = _fault(*invalid[0], known, text) if invalid else None
    warnings = [_warning(path, fault, "It is ignored.", len(invalid) - 1)]
    if isinstance(document.get(_FORMER_ALERTS), dict):
        renamed = _Fault(f"The table [{_FORMER_ALERTS}] is now called [{ALERTS}].", _line_of(_FORMER_ALERTS, text))
        warnings.append(_warning(path, renamed, "Rename it."))
    return Config(options, alerts, " ".join(filter(None, warnings)))


# The entries


class _Known:
    """The tables and options that the file may name.

    Args:
        commands: The group of all commands.
    """

    def __init__(self, commands: click.Group) -> None:
        self.tables = (*commands.commands, *_ALERT_TABLES)
        self._options = {name: _options(command) for name, command in commands.commands.items()}
        every_table = (_options(commands), *self._options.values())
        self._options[""] = {name: options[name] for name in SHARED for options in every_table if name in options}

    def option(self, entry: _Entry) -> click.Option:
        """The option that an entry sets.

        Raises:
            ValueError: There is no such option.
        """
        if not entry.table and entry.name in self.tables:
            raise ValueError(f"expected a table, not {_type_name(entry.value)}.")
        try:
            return self._options[entry.table][entry.name]
        except KeyError:
            raise _UnknownKeyError("there is no such key.") from None

    def similar_name(self, entry: _Entry) -> str:
        """The name that the user of an unknown one may have meant; empty if there is none."""
        tables = () if entry.table else tuple(name for name in self.tables if name != _FORMER_ALERTS)
        return next(iter(get_close_matches(entry.name, (*self._options[entry.table], *tables), n=1)), "")


def _entries(document: Toml, known: _Known) -> Iterator[_Entry]:
    """Every key with its value; the keys of a command's table one by one, and a former name before the name of now."""
    for name, value in sorted(document.items(), key=lambda item: item[0] != _FORMER_ALERTS):
        if name in known.tables and type(value) is dict:
            yield from (_Entry(name, key, item) for key, item in value.items())
        else:
            yield _Entry("", name, value)


def _fault(entry: _Entry, error: Exception, known: _Known, text: str) -> _Fault:
    """What is wrong with an entry, and where: searched only for the one that is reported."""
    reason = error.message if isinstance(error, click.BadParameter) else str(error)
    similar_name = known.similar_name(entry) if isinstance(error, _UnknownKeyError) else ""
    if similar_name:
        reason = f"there is no such key; did you mean {similar_name}?"
    return _Fault(f"{entry.key}: {reason}", _line_of(entry.key, text))


def _threshold(entry: _Entry) -> float:
    """The value of an alert threshold.

    Raises:
        ValueError: The threshold does not exist, or the value is out of range.
    """
    from gpumon.diagnosis.alerts import Thresholds  # imported late: most users have no file

    number: float = getattr(Thresholds.of({entry.name: entry.value}), entry.name)
    return number


def _options(command: click.Command) -> dict[str, click.Option]:
    """The options of a command by their long name."""
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    by_name = {max(option.opts, key=len).lstrip("-"): option for option in options}
    return {name: option for name, option in by_name.items() if name not in _NOT_IN_FILE}


def _option_value(option: click.Option, value: object) -> object:
    """Convert a value of the file to a value of the option.

    Raises:
        ValueError: The value has the wrong type.
        click.BadParameter: The value is out of range.
    """
    if not option.multiple:
        return _single_value(option, value)
    if type(value) is not list:
        raise ValueError(f"expected a list, not {_type_name(value)}.")
    return [_single_value(option, item) for item in value]


def _single_value(option: click.Option, value: object) -> object:
    types = _accepted_types(option)
    if type(value) not in types:
        raise ValueError(f"expected {_TYPE_NAMES[types[0]]}, not {_type_name(value)}.")
    return value if type(value) is bool else option.type.convert(str(value), option, None)


def _accepted_types(option: click.Option) -> tuple[type, ...]:
    if option.is_flag:
        return (bool,)
    if isinstance(option.type, Duration):
        return (str, int, float)
    return (float, int) if isinstance(option.type, (click.types.FloatParamType, click.types.IntParamType)) else (str,)


def _type_name(value: object) -> str:
    return _TYPE_NAMES.get(type(value), "a time")


def _warning(path: Path, fault: _Fault | None, consequence: str, count: int = 0) -> str:
    """A fault with its position, and the number of other faults; empty if there is no fault."""
    if fault is None:
        return ""
    reason, line = fault
    position = f"{safe_text(str(path), 200)}{f':{line}' if line else ''}"
    more = f" {count} more {'key is' if count == 1 else 'keys are'} not valid." if count else ""
    return f"{position}: {safe_text(reason, 200)} {consequence}{more}"


# The text


def _config_path() -> Path | None:
    """The path of the file; None for a user without a home folder."""
    base = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    if base.is_absolute():
        return base / "gpumon" / "config.toml"
    try:
        return Path.home() / ".config" / "gpumon" / "config.toml"
    except RuntimeError:
        return None


def _read_text(path: Path) -> str:
    """The text of the file; empty if there is no file.

    Raises:
        _UnusableFileError: The file cannot be read, is too large, or belongs to another user.
    """
    try:
        with io.FileIO(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise _UnusableFileError("Not a regular file.")
            problem = ownership_problem(path)  # the file of another user could name a program to run as Python
            if problem is not None:
                raise _UnusableFileError(problem.reason, remedy=problem.remedy)
            data = file.read(MAX_BYTES + 1) or b""
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise _UnusableFileError(f"{os.strerror(error.errno or 0)}.") from None
    if len(data) > MAX_BYTES:
        raise _UnusableFileError(f"The file is larger than {MAX_BYTES >> 10} KiB.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _UnusableFileError("The file is not UTF-8 text.", data.count(b"\n", 0, error.start) + 1) from None


def _parse(text: str) -> Toml:
    """Parse TOML.

    Raises:
        _UnusableFileError: The text is not TOML.
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
        raise _UnusableFileError("Tables or lists are nested too deeply.") from None
    except ValueError as error:  # also from int(), which limits the number of digits
        message = str(error)
        position = _POSITION.search(message)
        line = int(position[1] or text.count("\n") + 1) if position else 0
        raise _UnusableFileError(f"{safe_text(_POSITION.sub('', message), _MAX_REASON)}.", line) from None
    return document


def _line_of(key: str, text: str) -> int:
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
