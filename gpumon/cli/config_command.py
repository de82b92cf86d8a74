"""`gpumon config`: every key of the configuration file with its value, its default, and where the value comes from."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Final

import click
from click.core import ParameterSource

from gpumon.cli.appearance import NO_COLOR
from gpumon.cli.config import ALERTS, SHARED, Config, file_options
from gpumon.cli.config_file import config_path, line_of
from gpumon.cli.group import command_defaults, config
from gpumon.cli.notify_config import DEFAULTS as NOTIFY_DEFAULTS
from gpumon.cli.notify_config import NOTIFY
from gpumon.cli.options import debug_option, options
from gpumon.cli.output import print_json
from gpumon.core.new_files import new_file
from gpumon.core.problems import CommandError, ProblemCode
from gpumon.core.text import ELLIPSIS, aligned, safe_text
from gpumon.core.units import MISSING

SCHEMA: Final = 1
DEFAULT: Final = "default"
FILE: Final = "file"
ENVIRONMENT: Final = "environment"
_MAX_WIDTH: Final = 40
_HEADER: Final = """\
# The configuration file of gpumon. Every line that starts with # is a comment; remove the # to set a key.
# The command line takes precedence over the environment, and the environment over this file.
"""
_THEME_EXAMPLE: Final = """\
# A custom theme: a base, dark or light, and the colors that differ from it.
#[themes.sea]
#base = "dark"
#background = "#0b1f2a"
#primary = "#7fd4ff"
#load-high = "#ffb35c"
"""


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """A key of the file.

    Attributes:
        key: The dotted key.
        value: The value that is used.
        default: The value without any setting.
        source: Where the value comes from: the default, the file, the environment, or the command line.
        line: The line of the file, or None.
        variable: The variable of the environment, or None.
    """

    key: str
    value: object
    default: object
    source: str = DEFAULT
    line: int | None = None
    variable: str | None = None


@click.command("config", short_help="Show or create the configuration file.")
@options("config")
@debug_option
@click.pass_context
def config_command(context: click.Context, as_json: bool, path: bool, init: bool) -> None:
    """Print every key of the configuration file with its value, its default, and where the value comes from.

    The command line takes precedence over the environment, and the environment over the file. NO_COLOR sets the
    default theme, so every choice of a theme takes precedence over it.
    """
    file = config_path()
    if (path or init) and file is None:
        raise CommandError.missing(ProblemCode.NOT_FOUND, "This user has no home folder.", "Set XDG_CONFIG_HOME.")
    if path:
        click.echo(str(file))
        return
    root = context.find_root()
    if init:
        _create(root)
        return
    keys = list(config_keys(root))
    problems = [*config().problems, *_keymap_problems(config())]
    if as_json:
        document = {"schema": SCHEMA, "file": None if file is None else str(file), "keys": [*map(asdict, keys)]}
        print_json({**document, "problems": problems})
        return
    click.echo("\n".join(_table(keys)))
    click.echo("\n".join(["", f"File: {MISSING if file is None else safe_text(str(file))}", *problems]))


def config_keys(root: click.Context) -> Iterator[ConfigKey]:
    """Every key, for the settings of a root context."""
    content = config()
    yield from _shared_keys(root, content)
    yield from _alert_keys(content)
    for name, default in NOTIFY_DEFAULTS.items():
        value = content.notify.get(name)
        yield _file_key(f"{NOTIFY}.{name}", [*value] if isinstance(value, tuple) else value, default, content)
    assert isinstance(root.command, click.Group)
    for name, command in sorted(root.command.commands.items()):
        yield from _command_keys(root, name, command, content)
    yield from _theme_keys(content)
    yield from _column_keys(content)
    yield from _keymap_keys(content)


def _shared_keys(root: click.Context, content: Config) -> Iterator[ConfigKey]:
    assert isinstance(root.command, click.Group)
    options = file_options(root.command)
    for name in SHARED:
        option = options.get(name)
        if option is not None:
            source = root.get_parameter_source(name)
            yield _option_key(name, root.params[name], option, source, _variable(root, option), content)
        else:  # an option of some commands only
            options_of_commands = map(file_options, root.command.commands.values())
            option = next(chosen[name] for chosen in options_of_commands if name in chosen)
            is_set = name in content.options
            value = content.options[name] if is_set else _default(option)
            source = ParameterSource.DEFAULT_MAP if is_set else ParameterSource.DEFAULT
            yield _option_key(name, value, option, source, None, content)


def _command_keys(root: click.Context, name: str, command: click.Command, content: Config) -> Iterator[ConfigKey]:
    """The keys of the table of a command. A shared option is shown only if it is set here."""
    table = content.options.get(name, {})
    defaults = command_defaults(root, name)
    context = command.make_context(name, [], parent=root, resilient_parsing=True, default_map=defaults)
    for key, option in file_options(command).items():
        parameter = str(option.name)
        source = context.get_parameter_source(parameter)
        if source is ParameterSource.DEFAULT_MAP and parameter not in table:
            source = ParameterSource.DEFAULT
        if key in SHARED and source is ParameterSource.DEFAULT:
            continue
        value = context.params.get(parameter)
        yield _option_key(f"{name}.{key}", value, option, source, _variable(context, option), content)


def _alert_keys(content: Config) -> Iterator[ConfigKey]:
    from gpumon.health.alerts import DEFAULT_THRESHOLDS  # late, as everything that only some commands need

    for item in fields(DEFAULT_THRESHOLDS):
        default = getattr(DEFAULT_THRESHOLDS, item.name)
        key = f"{ALERTS}.{item.name}"
        yield _file_key(key, content.alerts.get(item.name), default, content)


def _theme_keys(content: Config) -> Iterator[ConfigKey]:
    if not content.appearance.themes:
        return
    from gpumon.present.palette import BUILT_IN, DARK

    for name, entries in content.appearance.themes.items():
        base = entries.get("base", DARK)
        for color, value in entries.items():
            default = DARK if color == "base" else BUILT_IN[base].colors[color]
            yield _file_key(f"themes.{name}.{color}", value, default, content)


def _column_keys(content: Config) -> Iterator[ConfigKey]:
    from gpumon.present.paint.columns import column_ids

    for table, ids in column_ids().items():
        chosen = content.appearance.columns.get(table)
        yield _file_key(f"columns.{table}", None if chosen is None else [*chosen], [*ids], content)


def _keymap_keys(content: Config) -> Iterator[ConfigKey]:
    from gpumon.ui.keymap import default_keys

    defaults, chosen = default_keys(), content.appearance.keymap
    for name in sorted({*defaults, *chosen}):
        yield _file_key(f"keymap.{name}", chosen.get(name), defaults.get(name), content)


def _keymap_problems(content: Config) -> list[str]:
    from gpumon.ui.keymap import check_keymap

    return check_keymap(content.appearance.keymap).problems


# A key


def _file_key(key: str, value: object, default: object, content: Config) -> ConfigKey:
    """A key that only the file can set; the value is None if it does not."""
    if value is None:
        return ConfigKey(key, default, default)
    return ConfigKey(key, value, default, FILE, line_of(key, content.text) or None)


def _option_key(  # noqa: PLR0917 - everything that is known about one option
    key: str, value: object, option: click.Option, source: object, variable: str | None, content: Config
) -> ConfigKey:
    default = _default(option)
    plain = [*value] if isinstance(value, tuple) else default if value is None else value
    if isinstance(default, str) and value == option.type.convert(default, option, None):
        plain = default  # as it is written: 7d, 150M
    if source is ParameterSource.COMMANDLINE:
        return ConfigKey(key, plain, default, "command line")
    if source is ParameterSource.ENVIRONMENT:
        return ConfigKey(key, plain, default, ENVIRONMENT, variable=variable)
    if source is ParameterSource.DEFAULT_MAP:
        return ConfigKey(key, plain, default, FILE, line_of(key, content.text) or None)
    if callable(option.default) and os.environ.get(NO_COLOR):
        return ConfigKey(key, plain, default, ENVIRONMENT, variable=NO_COLOR)
    return ConfigKey(key, plain, default)


def _default(option: click.Option) -> object:
    """The default of an option without any setting, as JSON has it."""
    default = option.default
    if callable(default):
        return "dark"
    if option.multiple:
        return [*default] if isinstance(default, (tuple, list)) else []
    if option.is_flag:
        return default is True
    return default if isinstance(default, (bool, int, float, str)) else None


def _variable(context: click.Context, option: click.Option) -> str | None:
    """The variable of the environment that sets an option; of several names, the one that is set."""
    if isinstance(option.envvar, str):
        return option.envvar
    if option.envvar:
        return next((name for name in option.envvar if name in os.environ), option.envvar[0])
    prefix = context.auto_envvar_prefix
    return None if prefix is None else f"{prefix}_{option.name}".upper()


# Text


def _table(keys: Sequence[ConfigKey]) -> Iterator[str]:
    return aligned([("Key", "Value", "Default", "Source"), *map(_cells, keys)])


def _cells(key: ConfigKey) -> tuple[str, str, str, str]:
    place = f":{key.line}" if key.line else f" ({key.variable})" if key.variable else ""
    source = f"{key.source}{place}"
    return safe_text(key.key, 80), _clipped(key.value), _clipped(key.default), source


def _clipped(value: object) -> str:
    text = safe_text(_toml(value))
    return text if len(text) <= _MAX_WIDTH else text[: _MAX_WIDTH - 1] + ELLIPSIS


def _toml(value: object) -> str:
    """A value as the file writes it; "–" if there is none."""
    if value is None:
        return MISSING
    return f"{value:g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


# The example


def _create(root: click.Context) -> None:
    """Write the example, unless there is a file.

    Raises:
        CommandError: There is a file, or it cannot be written.
    """
    path = config_path()
    assert path is not None
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with new_file(path) as file:
            file.write(example(root).encode())
    except FileExistsError:
        reason = f"{safe_text(str(path))} exists already; gpumon does not change it."
        raise CommandError.usage(ProblemCode.NOT_SUPPORTED, reason) from None
    except OSError as error:
        reason = f"{safe_text(str(path))} cannot be written: {os.strerror(error.errno or 0)}."
        raise CommandError.failure(ProblemCode.NOT_SUPPORTED, reason) from None
    click.echo(f"Wrote {safe_text(str(path))}. gpumon config shows what is set.")


def example(root: click.Context) -> str:
    """A file with every key as a comment, in the order of `config_keys`."""
    assert isinstance(root.command, click.Group)
    helps = _help_texts(root.command)
    lines = [_HEADER]
    table = ""
    for key in config_keys(root):
        name, _, last = key.key.partition(".") if "." in key.key else ("", "", key.key)
        if name == "themes" or key.default == []:
            continue
        if name != table:
            table = name
            lines += ["", f"[{table}]"]
        if key.key in helps:
            lines.append(f"# {helps[key.key]}")
        last = f'"{last}"' if "." in last else last
        lines.append(f"#{last} = {'...' if key.default is None else _toml(key.default)}")
    return "\n".join([*lines, "", _THEME_EXAMPLE])


def _help_texts(group: click.Group) -> Mapping[str, str]:
    """The help of every option by its dotted key, in one line."""
    commands = {"": group, **group.commands}
    texts = {
        f"{table}.{name}" if table else name: " ".join((option.help or "").split())
        for table, command in commands.items()
        for name, option in file_options(command).items()
    }
    speed = next(texts[key] for key in texts if key.endswith(".speed"))
    return {**texts, "speed": speed}
