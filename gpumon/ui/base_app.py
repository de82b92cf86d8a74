"""Common parts of gpumon's apps: themes, help, copying and saving the screen, and an end that restores the terminal."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

from textual import events
from textual._context import active_message_pump
from textual.app import App
from textual.css.query import NoMatches
from textual.dom import DOMNode
from textual.filter import LineFilter, Monochrome, NoColor
from textual.screen import Screen
from textual.theme import BUILTIN_THEMES

from gpumon.core.units import counted, file_stamp
from gpumon.present.palette import BUILT_IN, DARK, Palette, palettes
from gpumon.session.background import run_in_background
from gpumon.ui import textual_fixes  # noqa: F401 - the import applies them
from gpumon.ui.keymap import Bindings, key, without_effect
from gpumon.ui.screens.base import BaseScreen
from gpumon.ui.themes import WithoutColors, textual_theme
from gpumon.ui.widgets.footer import Footer
from gpumon.ui.widgets.text_lines import ROLE_CLASSES

_LATE_SECONDS: Final = 5.0
_MANY_WAITING: Final = 32
"""The last keys are never left out, however late: they may be those that quit."""


class BaseApp(App[None]):
    """An app that `gpumon.ui.terminal` runs.

    Attributes:
        failure: The exception that ended it, if there was one.
        leave: Restores the terminal and ends the process, once a thread has ended its children; None in tests.
    """

    CSS_PATH = Path(__file__).with_name("gpumon.tcss")
    COMPONENT_CLASSES: ClassVar[set[str]] = set(ROLE_CLASSES)
    BINDINGS: ClassVar[Bindings] = [
        key("copy", "Copy", "Copy the row or the text to the clipboard"),
        key("save", "Save", "Save the screen as a picture and as text"),
        key("theme", "Theme", "Choose a theme, which is shown at once"),
        key("redraw", "Redraw", "Redraw the complete screen", show=False),
        key("suspend", "Suspend", "Suspend; resume with fg", "suspend_process", show=False),
        key("help", "Help", "Keys and the meaning of the columns"),
        key("quit", "Quit", "Quit; asks while a workload started here is running", "ask_to_quit"),
        key("quit-now", "Quit now", "Quit without a question", "quit", show=False, priority=True),
    ]

    leave: Callable[[threading.Thread], None] | None = None

    def __init__(self, theme: str, user_palettes: Sequence[Palette] = ()) -> None:
        """Show a theme by its name, built-in or one of the user's."""
        super().__init__()
        self.failure: Exception | None = None
        self._palettes = palettes(user_palettes)
        for palette in self._palettes.values():
            self.register_theme(textual_theme(palette))
        self.theme = theme
        for name in BUILTIN_THEMES.keys() - self._palettes:  # they have no colors for roles, and not the contrasts
            self.unregister_theme(name)
        self.stylesheet.set_variables(self.get_css_variables())
        self._without_colors = WithoutColors()
        self._said_late = 0.0

    @property
    def theme_names(self) -> list[str]:
        """The themes in the order in which they are listed."""
        return list(self._palettes)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """The variables of the stylesheet while Textual still has the theme that it starts with."""
        return textual_theme(BUILT_IN[DARK]).variables

    def get_line_filters(self) -> Sequence[LineFilter]:
        """No color in the theme without colors. The filters that Textual adds for NO_COLOR send shades of gray."""
        if self.no_color:
            return [self._without_colors]
        return [item for item in super().get_line_filters() if not isinstance(item, (Monochrome, NoColor))]

    def watch_theme(self, theme: str) -> None:
        """Follow a change of the theme: styles of the pseudo-class ``nocolor`` belong to the theme without colors."""
        self.no_color = not self._palettes[theme].has_colors

    def legend(self) -> str:
        """What the help explains in addition to the keys."""
        return ""

    def warn(self, text: object) -> None:
        """Notify of something that the user should know; the text may come from outside."""
        self.notify(str(text), severity="warning", markup=False)

    def say(self, text: str) -> None:
        """Say what a key did, or why it did nothing, in the line of the keys; a screen without one shows a notice."""
        footer = next(iter(self.screen.query(Footer)), None)
        if footer is None:
            self.notify(text, markup=False)
        else:
            footer.say(text)

    async def on_event(self, event: events.Event) -> None:
        """Handle an event. A busy host falls behind a key that is held: what waited long before others is left out."""
        now = time.monotonic()
        is_late = isinstance(event, events.Key) and now - event.time > _LATE_SECONDS
        if not is_late or self.message_queue_size <= _MANY_WAITING:
            await super().on_event(event)
        elif now > self._said_late + _LATE_SECONDS:  # once for all of them
            self._said_late = now
            self.say("This host is busy: keys that waited too long are left out")

    async def _check_bindings(self, key: str, priority: bool = False) -> bool:
        """Run what a key is bound to, as Textual does, and say so if it has no effect here."""
        has_effect = await super()._check_bindings(key, priority)
        if not has_effect and not priority and (text := without_effect(key)):
            self.say(text)
        return has_effect

    def action_help(self) -> None:
        from gpumon.ui.screens.help import HelpScreen  # late: the first frame must not wait for it

        self.push_screen(HelpScreen(self.screen, self.legend()))

    def action_theme(self) -> None:
        from gpumon.ui.screens.choice import ThemePicker  # few sessions need it

        def name_it(_: None) -> None:
            self.say(f'Theme {self.theme}; to keep it: theme = "{self.theme}" in config.toml')

        self.push_screen(ThemePicker(self.theme_names), name_it)

    def action_redraw(self) -> None:
        self.refresh(layout=True)

    def action_copy(self) -> None:
        screen = self.screen
        text = screen.text_to_copy if isinstance(screen, BaseScreen) else ""
        if not text:
            self.say("y: nothing to copy")
            return
        self.copy_to_clipboard(text)
        count = text.count("\n") + 1
        self.say(f"Copied {counted(count, 'line')}" if count > 1 else f"Copied: {text}")

    def action_save(self) -> None:
        name = f"gpumon-{file_stamp()}"
        save = partial(save_screen, self.picture(), screen_text(self.screen), name)
        run_in_background(save, self._report_saved, self.call_later)

    def export_screenshot(self, *, title: str | None = None, simplify: bool = False) -> str:
        """Adds the attribute without which some SVG viewers drop the indentation of every line."""
        svg = super().export_screenshot(title=title, simplify=simplify)
        return svg.replace("<text ", '<text xml:space="preserve" ')

    def picture(self) -> str:
        """A picture of the screen that needs no special font, with the keys in place of what the last one said."""
        from gpumon.ui.drawn_glyphs import with_drawn_glyphs  # late: few sessions save a picture

        for footer in self.screen.query(Footer):
            footer.say("")
        return with_drawn_glyphs(self.export_screenshot())

    async def action_ask_to_quit(self) -> None:
        """Quit; an app with workloads asks first."""
        await self.action_quit()

    def _report_saved(self, result: Path | OSError) -> None:
        if isinstance(result, OSError):
            reason = result.strerror or result
            self.notify(f"The screen could not be saved: {reason}.", severity="error", markup=False)
        else:
            self.notify(f"Saved {result} and {result.with_suffix('.txt').name}", markup=False)

    def _handle_exception(self, error: Exception) -> None:
        """End, except where a closed screen looks for its widgets: a key may close a screen that is still opening."""
        pump = active_message_pump.get(None)
        if isinstance(error, NoMatches) and isinstance(pump, DOMNode):
            screens = (node for node in pump.ancestors_with_self if isinstance(node, Screen))
            if next(screens, None) not in self.screen_stack:
                return
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        """End without Textual's page-long traceback; the command line reports the failure."""
        self.failure = self._exception if isinstance(self._exception, Exception) else OSError("the terminal is broken")
        self._close_messages_no_wait()

    def panic(self, *_: object) -> None:
        """End as `_fatal_error` does: Textual calls this for errors that print themselves and when its input ends."""
        self._fatal_error()


def screen_text(screen: Screen[Any]) -> str:
    """What a screen shows, as text."""
    strips = screen._compositor.render_strips()  # noqa: SLF001 - Textual has no public name for it
    return "".join(f"{strip.text.rstrip()}\n" for strip in strips)


def save_screen(svg: str, text: str, name: str, folder: Path | None = None) -> Path | OSError:
    """Write a picture of a screen and its text to a folder; returns the picture, or why it could not be written.

    Args:
        svg: The picture.
        text: The text.
        name: Name of both files, without suffix.
        folder: The folder; by default the user's folder for downloads, or gpumon's state folder if there is none.
    """
    from gpumon.core.new_files import replace_file  # late, as below: few sessions need it

    failure = OSError("no folder")
    for candidate in _folders() if folder is None else (folder,):
        picture = candidate / f"{name}.svg"
        try:
            candidate.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_file(picture, svg.encode(), 0o666)
            replace_file(picture.with_suffix(".txt"), text.encode(), 0o666)
        except OSError as error:
            failure = error
        else:
            return picture
    return failure


def _folders() -> Iterator[Path]:
    from platformdirs import user_downloads_path  # a requirement of Textual

    from gpumon.workload_runs.results import results_file

    with suppress(RuntimeError):  # a user may have no home
        downloads = user_downloads_path()
        if downloads.is_dir():
            yield downloads
        yield results_file().parent
