"""Keeps Python 3.11 from collecting garbage while the frames of another thread are read.

Python 3.11 makes the object of a frame when that is asked for. This may start a garbage collection, whose callbacks
and finalizers are Python code, so that the other thread may run meanwhile and leave the frame: the new object then
belongs to memory that something else uses, and the process crashes. Earlier versions have an object for each frame, and
later ones collect garbage only between instructions.
"""

from __future__ import annotations

import gc
import sys

_IS_NEEDED = sys.version_info[:2] == (3, 11)
_has_disabled = False


class NoCollections:
    """A context manager around code that reads the frames of other threads."""

    def __init__(self) -> None:
        self._was_enabled = False

    def __enter__(self) -> None:
        global _has_disabled  # noqa: PLW0603 - the collector belongs to the process
        self._was_enabled = _IS_NEEDED and gc.isenabled()
        if self._was_enabled:
            _has_disabled = True
            gc.disable()

    def __exit__(self, *_: object) -> None:
        global _has_disabled  # noqa: PLW0603
        if self._was_enabled:
            gc.enable()
            _has_disabled = False


def after_fork() -> None:
    """Let a child collect garbage, if it was forked by a thread while another one read frames."""
    if _has_disabled:
        gc.enable()
