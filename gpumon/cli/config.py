"""What the configuration file says of the commands' options, as if it were typed each time.

What in it cannot be used is left out, and one sentence says so.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from gpumon.cli.config_file import Fault, Toml, UnusableError, config_path, line_of, parse, read_text
from gpumon.cli.options import Duration
from gpumon.core.text import safe_text

SHARED: Final = ("interval", "theme", "mouse", "history", "speed")
"""Options that stand at the top of the file, for every command that takes them."""
HEALTH: Final = "health"
"""The table of thresholds."""

_OF_THE_MOMENT: Final = frozenset({"yes", "debug", "help", "version"})
"""No file says these: whether to begin beside other people's work, for one, is asked each time."""
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
    """What the file says.

    Attributes:
        options: Value by parameter, and by command a table of those for that command alone: click's ``default_map``.
        health: Threshold by name.
        warning: What is wrong with the file, in one line; empty if nothing is.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    health: Mapping[str, float] = field(default_factory=dict)
    warning: str = ""


class _Setting(NamedTuple):
    """A key and its value; the table is a command's name or that of health, and empty at the top."""

    table: str
    name: str
    value: object

    @property
    def key(self) -> str:
        """As it could stand in one line."""
        return f"{self.table}.{self.name}" if self.table else self.name


def load_config(commands: click.Group) -> Config:
    """What the user's file says of the options of the commands, and of what is healthy."""
    path = config_path()
    if path is None:
        return Config()
    try:
        text = read_text(path)
        document = parse(text)
    except UnusableError as error:
        return Config(warning=_warning(path, [error.fault], "The defaults are used."))
    faults: list[Fault] = []
    options: Toml = {}
    health: dict[str, float] = {}
    for setting in _settings(document, commands):
        try:
            if setting.table == HEALTH:
                health[setting.name] = _threshold(setting)
            else:
                option = _option(setting, commands)
                held = options.setdefault(setting.table, {}) if setting.table else options
                held[str(option.name)] = _value(option, setting.value)
        except (ValueError, click.BadParameter) as error:
            said = error.message if isinstance(error, click.BadParameter) else str(error)
            faults.append(Fault(f"{setting.key}: {said}", line_of(setting.key, text)))
    return Config(options, health, _warning(path, faults, "It is left out."))


def _settings(document: Toml, commands: click.Group) -> Iterator[_Setting]:
    """Every key; tables are taken apart."""
    for name, value in document.items():
        if name in _tables(commands) and type(value) is dict:
            yield from (_Setting(name, each, held) for each, held in value.items())
        else:
            yield _Setting("", name, value)


def _tables(commands: click.Group) -> tuple[str, ...]:
    return (*commands.commands, HEALTH)


def _threshold(setting: _Setting) -> float:
    """A threshold of the table of health.

    Raises:
        ValueError: There is none of that name, or it makes no sense.
    """
    from gpumon.diagnosis.health import Thresholds  # late, as most users have no file

    number: float = getattr(Thresholds.of({setting.name: setting.value}), setting.name)
    return number


def _option(setting: _Setting, commands: click.Group) -> click.Option:
    """The option that a key sets.

    Raises:
        ValueError: There is none.
    """
    command = commands.commands.get(setting.table)
    tables = () if setting.table else _tables(commands)
    if setting.name in tables:
        raise ValueError(f"expected a table, not {_type_name(setting.value)}.")
    known = _shared(commands) if command is None else _options(command)
    if setting.name in known:
        return known[setting.name]
    near = get_close_matches(setting.name, (*known, *tables), n=1)
    raise ValueError(f"there is no such key{f'; near it is {near[0]}' if near else ''}.")


def _shared(commands: click.Group) -> dict[str, click.Option]:
    """The options for the top of the file."""
    every = [_options(each) for each in (commands, *commands.commands.values())]
    return {name: options[name] for name in SHARED for options in every if name in options}


def _options(command: click.Command) -> dict[str, click.Option]:
    """A command's options, by the name that is typed."""
    options = [each for each in command.params if isinstance(each, click.Option)]
    named = {max(option.opts, key=len).lstrip("-"): option for option in options}
    return {name: option for name, option in named.items() if name not in _OF_THE_MOMENT}


def _value(option: click.Option, value: object) -> object:
    """A value of the file as the option takes it.

    Raises:
        ValueError: It is of another type.
        click.BadParameter: It is out of range.
    """
    if not option.multiple:
        return _one(option, value)
    if type(value) is not list:
        raise ValueError(f"expected a list, not {_type_name(value)}.")
    return [_one(option, each) for each in value]


def _one(option: click.Option, value: object) -> object:
    wanted = _types(option)
    if type(value) not in wanted:
        raise ValueError(f"expected {_TYPE_NAMES[wanted[0]]}, not {_type_name(value)}.")
    return value if type(value) is bool else option.type.convert(str(value), option, None)


def _types(option: click.Option) -> tuple[type, ...]:
    if option.is_flag:
        return (bool,)
    if isinstance(option.type, Duration):
        return (str, int, float)
    return (float, int) if isinstance(option.type, (click.types.FloatParamType, click.types.IntParamType)) else (str,)


def _type_name(value: object) -> str:
    return _TYPE_NAMES.get(type(value), "a time")


def _warning(path: Path, faults: Sequence[Fault], instead: str) -> str:
    """The first fault with its place, and how many more there are."""
    if not faults:
        return ""
    reason, line = faults[0]
    place = f"{safe_text(str(path), 200)}{f':{line}' if line else ''}"
    left = len(faults) - 1
    more = f" {left} more key{' is' if left == 1 else 's are'} wrong." if left else ""
    return f"{place}: {safe_text(reason, 200)} {instead}{more}"
