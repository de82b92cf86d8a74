"""The table ``[notify]`` of the configuration file: how new alerts reach people who look elsewhere."""

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gpumon.session.alert_notifier import NotifySettings

NOTIFY: Final = "notify"
DEFAULTS: Final[Mapping[str, object]] = {"bell": False, "terminal": "", "command": ""}


def notify_value(name: str, value: object) -> object:
    """The value of a key of the table.

    Raises:
        ValueError: There is no such key, or the value is not valid.
    """
    if name == "bell" and type(value) is bool:
        return value
    if name == "terminal" and value in ("", "osc9", "osc777"):
        return value
    if name == "command":
        return _command(value)
    if name not in DEFAULTS:
        raise ValueError("there is no such key.")
    raise ValueError("expected true or false." if name == "bell" else 'expected "osc9", "osc777" or "".')


def notify_settings(values: Mapping[str, object]) -> "NotifySettings":
    """The settings of the file."""
    from gpumon.session.alert_notifier import NotifySettings  # late: only the screen notifies

    return NotifySettings(**values)  # type: ignore[arg-type]


def _command(value: object) -> tuple[str, ...]:
    """Program and arguments: of a list as they are, of a text separated as a shell does; no shell runs either."""
    if isinstance(value, str):
        return tuple(shlex.split(value))
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return tuple(value)
    raise ValueError("expected text, or a list of texts.")
