"""Opens the screen for a command. Textual is imported when it opens, so that other commands start fast."""

import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from gpumon.cli.group import appearance, notices, thresholds, warnings

if TYPE_CHECKING:
    from gpumon.fleet.settings import FleetSource
    from gpumon.streams.base import Stream


def show(
    stream: "Stream",
    theme: str,
    mouse: bool,
    history: float,
    *,
    is_read_only: bool,
    load_probe: str = "ask",
    fleet: "FleetSource | None" = None,
    opens_fleet: bool = False,
) -> NoReturn:
    """Open the screen. The stream starts first, so that frames arrive while the screen's library is imported."""
    from gpumon.core.heap import limit_heap
    from gpumon.ui import terminal

    terminal.require()
    terminal.set_textual_defaults()
    limit_heap()  # before the first thread, which would get a separate heap
    gc.disable()  # imports make no garbage; the app enables it again
    stream.start()
    try:
        with terminal.start_note():
            from gpumon.ui.app import GpumonApp

            look = appearance()
            app = GpumonApp(
                stream,
                theme,
                history,
                notice=" ".join(warnings()),
                thresholds=thresholds(),
                user_palettes=look.palettes(),
                columns=look.columns,
                keymap=look.keymap,
                notices=notices(),
                is_read_only=is_read_only,
                load_probe=load_probe,
                fleet=fleet,
                opens_fleet=opens_fleet,
            )
        code = terminal.run(app, stream.close, mouse=mouse)
    finally:
        stream.close()
    os._exit(code)  # the terminal is restored; a regular exit would wait for threads that wait for the driver


def show_files(kind: str, files: Sequence[Path], theme: str, *, mouse: bool) -> int:
    """Open the screen of snapshots or traces; returns the exit code.

    Args:
        kind: ``snapshot`` or ``trace``.
        files: The files.
        theme: Name of the theme.
        mouse: Whether the mouse is used.
    """
    from gpumon.ui import terminal

    terminal.require()
    terminal.set_textual_defaults()
    from gpumon.ui.viewer_app import snapshot_app, trace_app

    app = (snapshot_app if kind == "snapshot" else trace_app)(files, theme, appearance().palettes())
    return terminal.run(app, app.stop_reading, mouse=mouse)


def has_screen(*, reads_keys: bool = True) -> bool:
    """Whether a screen can be opened: the standard streams are a terminal that is not dumb.

    Args:
        reads_keys: Whether standard input and standard error must be terminals too.
    """
    streams = (sys.stdin, sys.stdout, sys.stderr) if reads_keys else (sys.stdout,)
    is_terminal = all(stream is not None and stream.isatty() for stream in streams)
    return is_terminal and os.environ.get("TERM", "") not in {"", "dumb"}
