"""What the configuration file says about the look of the screens: themes, columns and keys."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from gpumon.present.palette import Palette

CONFIG: Final = "gpumon.config"
"""The key in click's context of the configuration."""
NO_COLOR: Final = "NO_COLOR"
"""The variable of https://no-color.org: the default theme is the one without colors if it is set and not empty."""


@dataclass(frozen=True, slots=True)
class Appearance:
    """The look of the screens.

    Attributes:
        themes: The user's themes: color by name, and the base, by the name of the theme.
        columns: Ids of the columns that a table shows at first, by the name of the table.
        keymap: Keys by binding id, separated by commas.
    """

    themes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    keymap: Mapping[str, str] = field(default_factory=dict)

    def palettes(self) -> "tuple[Palette, ...]":
        """The colors of the user's themes."""
        if not self.themes:
            return ()
        from gpumon.present.palette import user_palette  # late: most users have no theme

        return tuple(user_palette(name, entries) for name, entries in self.themes.items())


class AppearanceReader:
    """Collects the entries of the tables ``themes``, ``columns`` and ``keymap``, each of which it checks."""

    TABLES: Final = ("themes", "columns", "keymap")

    def __init__(self) -> None:
        self._themes: dict[str, dict[str, str]] = {}
        self._columns: dict[str, tuple[str, ...]] = {}
        self._keymap: dict[str, str] = {}

    @property
    def theme_names(self) -> tuple[str, ...]:
        """Names of the user's themes that have been added."""
        return tuple(self._themes)

    def add_color(self, theme: str, name: str, value: object) -> None:
        """Add a color of a theme, or its base.

        Raises:
            ValueError: The name of the theme or of the color is not valid, or the value is not a color.
        """
        from gpumon.present.palette import check_color, check_theme_name  # late, as below: most users have no file

        check_theme_name(theme)
        colors = self._themes.setdefault(theme, {})
        check_color(name, value)
        colors[name] = str(value)

    def add_columns(self, table: str, value: object) -> None:
        """Add the columns of a table.

        Raises:
            ValueError: There is no such table or column, or the value is not a list of ids.
        """
        from gpumon.present.paint.columns import column_ids

        tables = column_ids()
        if table not in tables:
            raise ValueError(f"there is no such table{_hint(table, tables)}")
        if not (isinstance(value, list) and value and all(isinstance(item, str) for item in value)):
            raise ValueError('expected a list of column ids, such as ["name", "memory"].')
        for column in value:
            if column not in tables[table]:
                raise ValueError(f"there is no column {column!r}{_hint(column, tables[table])}")
        self._columns[table] = tuple(dict.fromkeys(value))

    def add_keys(self, binding: str, value: object) -> None:
        """Add the keys of a binding: a text, or a list of texts. The screens check the name of the binding.

        Raises:
            ValueError: The value is not one or more keys.
        """
        keys = [str(key).strip() for key in (value if isinstance(value, list) else [value]) if isinstance(key, str)]
        if not (keys and all(keys)) or (isinstance(value, list) and len(keys) < len(value)):
            raise ValueError('expected a key, such as "q", or a list of keys.')
        self._keymap[binding] = ",".join(keys)

    def appearance(self) -> Appearance:
        """What has been collected."""
        return Appearance(self._themes, self._columns, self._keymap)


def _hint(name: str, names: Iterable[str]) -> str:
    similar = get_close_matches(name, names, n=1)
    return f"; did you mean {similar[0]}?" if similar else "."


class ThemeName(click.ParamType[str]):
    """The name of a theme, built-in or one of the user's."""

    name = "theme"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name, if there is a theme of that name."""
        return self.checked(value, _user_themes(ctx), param, ctx)

    def checked(
        self,
        value: str,
        user_themes: Iterable[str],
        param: click.Parameter | None = None,
        ctx: click.Context | None = None,
    ) -> str:
        """The name, if it is that of a built-in theme or of one of the given ones."""
        names = _theme_names(user_themes)
        if value not in names:
            self.fail(f"{value!r} is not one of {', '.join(map(repr, names))}.", param, ctx)
        return value

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002 - click passes it
        """The names of the themes, for the help."""
        return f"[{'|'.join(_theme_names(_user_themes(ctx)))}]"

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002 - click passes it
        incomplete: str,
    ) -> list[CompletionItem]:
        """The themes whose names start like this."""
        return [CompletionItem(name) for name in _theme_names(_user_themes(ctx)) if name.startswith(incomplete)]


def default_theme() -> str:
    """The theme of a user who chose none: the one without colors if NO_COLOR is set and not empty."""
    return "mono" if os.environ.get(NO_COLOR) else "dark"


def _user_themes(ctx: click.Context | None) -> tuple[str, ...]:
    config = None if ctx is None else ctx.meta.get(CONFIG)
    return () if config is None else tuple(config.appearance.themes)


def _theme_names(user_themes: Iterable[str]) -> tuple[str, ...]:
    from gpumon.present.palette import BUILT_IN  # late: it imports what draws text

    return (*BUILT_IN, *user_themes)
