"""The configuration file: its entries set the options of the commands, as if they were given each time.

An entry that is not valid is ignored and reported in one line; it is never an error.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from gpumon.cli.appearance import Appearance, AppearanceReader, ThemeName
from gpumon.cli.config_file import Fault, Toml, UnusableFileError, config_path, line_of, parse, read_text
from gpumon.cli.notify_config import NOTIFY, notify_value
from gpumon.core.text import safe_text

SHARED: Final = ("interval", "theme", "mouse", "history", "speed", "read_only", "load_probe")
"""Options at the top of the file, for every command that has them."""
ALERTS: Final = "alerts"
"""The table of alert thresholds."""
_FORMER_ALERTS: Final = "health"
"""The former name of that table."""
_ALERT_TABLES: Final = (_FORMER_ALERTS, ALERTS)
_THEMES: Final = "themes"
_KEYMAP: Final = "keymap"
_FIRST_TABLES: Final = (_FORMER_ALERTS, _THEMES)
"""Tables that are read before the others: a former name before the name of now, themes before the choice of one."""

_NOT_IN_FILE: Final = frozenset({"at", "yes", "attach", "debug", "help", "version", "path", "init", "install"})
"""Options that the file cannot set: a start next to other processes, for example, is confirmed each time."""
_TYPE_NAMES: Final[Mapping[type, str]] = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "a table",
}


@dataclass(frozen=True, slots=True)
class Config:
    """The content of the configuration file.

    Attributes:
        options: Value by parameter name, and a table of values per command: click's ``default_map``.
        alerts: Alert threshold by name.
        appearance: Themes, columns and keys.
        notify: Values of the table ``notify``.
        warning: What is wrong with the file, in one line; empty if nothing is.
        problems: Everything that is wrong with the file, one line each.
        text: The text of the file.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    alerts: Mapping[str, float] = field(default_factory=dict)
    appearance: Appearance = field(default_factory=Appearance)
    notify: Mapping[str, object] = field(default_factory=dict)
    warning: str = ""
    problems: tuple[str, ...] = field(default=(), compare=False)
    text: str = field(default="", compare=False, repr=False)


class _Entry(NamedTuple):
    """A key and its value; ``table`` is empty at the top of the file, and ``themes.NAME`` for a theme."""

    table: str
    name: str
    value: object

    @property
    def key(self) -> str:
        """The dotted key."""
        return f"{self.table}.{self.name}" if self.table else self.name


class _UnknownKeyError(ValueError):
    """The file names an option that does not exist."""


_MAX_PROBLEMS: Final = 20
"""Problems that are described; a file with more of them is probably not meant for gpumon."""


def load_config(commands: click.Group) -> Config:
    """Read the user's file: options of the given commands, alert thresholds, and the look of the screens."""
    path = config_path()
    if path is None:
        return Config()
    try:
        text = read_text(path)
        document = parse(text)
    except UnusableFileError as error:
        warning = _warning(path, error.fault, error.consequence)
        return Config(warning=warning, problems=(warning,))
    known = _Known(commands)
    reader = _Reader(known)
    for entry in _entries(document, known):
        reader.add(entry)
    invalid = reader.invalid
    problems = [_warning(path, _fault(*item, known, text), "It is ignored.") for item in invalid[:_MAX_PROBLEMS]]
    warnings = problems[:1]
    if len(invalid) > 1:
        count = len(invalid) - 1
        warnings[0] += f" {count} more {'key is' if count == 1 else 'keys are'} not valid."
    if isinstance(document.get(_FORMER_ALERTS), dict):
        renamed = Fault(f"The table [{_FORMER_ALERTS}] is now called [{ALERTS}].", line_of(_FORMER_ALERTS, text))
        warnings.append(_warning(path, renamed, "Rename it."))
        problems.append(warnings[-1])
    return Config(
        reader.options,
        reader.alerts,
        reader.appearance.appearance(),
        reader.notify,
        " ".join(warnings),
        tuple(problems),
        text,
    )


class _Reader:
    """Takes the entries one by one, and keeps those that are not valid with the reason.

    Args:
        known: The tables and options that the file may name.
    """

    def __init__(self, known: "_Known") -> None:
        self.options: Toml = {}
        self.alerts: dict[str, float] = {}
        self.appearance = AppearanceReader()
        self.notify: dict[str, object] = {}
        self.invalid: list[tuple[_Entry, Exception]] = []
        self._known = known

    def add(self, entry: _Entry) -> None:
        """Use an entry, or note why it cannot be used."""
        try:
            self._use(entry)
        except (ValueError, click.BadParameter) as error:
            self.invalid.append((entry, error))

    def _use(self, entry: _Entry) -> None:
        table, _, theme = entry.table.partition(".")
        if table in _ALERT_TABLES:
            self.alerts[entry.name] = _threshold(entry)
        elif theme:
            self.appearance.add_color(theme, entry.name, entry.value)
        elif table == _THEMES:
            raise ValueError(f"expected a table, not {_type_name(entry.value)}.")
        elif table == "columns":
            self.appearance.add_columns(entry.name, entry.value)
        elif table == NOTIFY:
            self.notify[entry.name] = notify_value(entry.name, entry.value)
        elif table == _KEYMAP:
            self.appearance.add_keys(entry.name, entry.value)
        else:
            option = self._known.option(entry)
            values = self.options.setdefault(table, {}) if table else self.options
            values[str(option.name)] = _option_value(option, entry.value, self.appearance.theme_names)


# The entries


class _Known:
    """The tables and options that the file may name."""

    def __init__(self, commands: click.Group) -> None:
        self.tables = (*commands.commands, *_ALERT_TABLES, *AppearanceReader.TABLES, NOTIFY)
        self._commands = commands

    def _options(self, table: str) -> Mapping[str, click.Option]:
        """The options of a table.

        Raises:
            KeyError: It is not the table of a command.
        """
        commands = self._commands.commands
        if table:
            return file_options(commands[table])
        options = file_options(commands["demo"]) | file_options(self._commands)
        return {name: options[name] for name in SHARED}

    def option(self, entry: _Entry) -> click.Option:
        """The option that an entry sets.

        Raises:
            ValueError: There is no such option.
        """
        if not entry.table and entry.name in self.tables:
            raise ValueError(f"expected a table, not {_type_name(entry.value)}.")
        try:
            return self._options(entry.table)[entry.name]
        except KeyError:
            raise _UnknownKeyError("there is no such key.") from None

    def similar_name(self, entry: _Entry) -> str:
        """The name that the user of an unknown one may have meant; empty if there is none."""
        tables = () if entry.table else tuple(name for name in self.tables if name != _FORMER_ALERTS)
        return next(iter(get_close_matches(entry.name, (*self._options(entry.table), *tables), n=1)), "")


def _entries(document: Toml, known: _Known) -> Iterator[_Entry]:
    """Every key with its value; the keys of a table one by one."""
    for name, value in sorted(document.items(), key=lambda item: item[0] not in _FIRST_TABLES):
        if not (name in known.tables and type(value) is dict):
            yield _Entry("", name, value)
            continue
        for key, item in value.items():
            if name == _THEMES and type(item) is dict:
                yield from (_Entry(f"{name}.{key}", color, code) for color, code in item.items())
            elif name == _KEYMAP and type(item) is dict:  # TOML reads table.up without quotes as a table
                yield from (_Entry(name, f"{key}.{rest}", keys) for rest, keys in item.items())
            else:
                yield _Entry(name, key, item)


def _fault(entry: _Entry, error: Exception, known: _Known, text: str) -> Fault:
    """What is wrong with an entry, and where: searched only for those that are reported."""
    reason = error.message if isinstance(error, click.BadParameter) else str(error)
    similar_name = known.similar_name(entry) if isinstance(error, _UnknownKeyError) else ""
    if similar_name:
        reason = f"there is no such key; did you mean {similar_name}?"
    return Fault(f"{entry.key}: {reason}", line_of(entry.key, text))


def _threshold(entry: _Entry) -> float:
    """The value of an alert threshold.

    Raises:
        ValueError: The threshold does not exist, or the value is out of range.
    """
    from gpumon.health.alerts import Thresholds  # imported late: most users have no file

    number: float = getattr(Thresholds.of({entry.name: entry.value}), entry.name)
    return number


def file_options(command: click.Command) -> dict[str, click.Option]:
    """The options of a command that the file can set, by their long name; its dashes are underscores in the file."""
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    by_name = {max(option.opts, key=len).lstrip("-").replace("-", "_"): option for option in options}
    return {name: option for name, option in by_name.items() if name not in _NOT_IN_FILE}


def _option_value(option: click.Option, value: object, user_themes: Iterable[str]) -> object:
    """Convert a value of the file to a value of the option.

    Raises:
        ValueError: The value has the wrong type.
        click.BadParameter: The value is out of range.
    """
    if isinstance(option.type, ThemeName) and isinstance(value, str):
        return option.type.checked(value, user_themes)
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
    if option.type.name == "duration":
        return (str, int, float)
    return (float, int) if isinstance(option.type, (click.types.FloatParamType, click.types.IntParamType)) else (str,)


def _type_name(value: object) -> str:
    return _TYPE_NAMES.get(type(value), "a time")


def _warning(path: Path, fault: Fault, consequence: str) -> str:
    """A fault with its position."""
    position = f"{safe_text(str(path), 200)}{f':{fault.line}' if fault.line else ''}"
    return f"{position}: {safe_text(fault.reason, 200)} {consequence}"
