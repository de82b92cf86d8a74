"""A path that is missing: its folder, and whether it is of another user or host than the program."""

import re
from typing import Final

from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.raised import TracebackFrame

_LAST: Final = r"[\\/][^\\/]*$"
_PATH: Final = lazy_pattern(r"""(?i:no such file|not found|exist)[^'"\n]*['"](?P<path>[^'"\n]*[\w.-])['"]\)?$""")
_HOME: Final = lazy_pattern(
    r"/home/[^/]+|/Users/[^/]+|/Volumes/[^/]+|/(?:content|kaggle)(?=/)|[A-Za-z]:[\\/]+[Uu]sers[\\/]+[^\\/]+"
)
_NOT_OF_LINUX: Final = lazy_pattern(r"/Users/|[A-Za-z]:[\\/]+[Uu]sers[\\/]")
"""Homes that a Linux host does not have."""


def parent_of(path: str) -> str:
    """The folder of a file, on any system."""
    parent = re.sub(_LAST, "", path)
    return "." if parent == path else parent or "/"


def path_values(message: str, frame: TracebackFrame | None) -> dict[str, str]:
    """The `parent` of a path at the end of a message; `foreign` and `here`, if another user or host has that home."""
    match = _PATH.search(message)
    if match is None:
        return {}
    file = "" if frame is None or not frame.is_own else frame.file
    values = {"parent": parent_of(match["path"])}
    home, own = _HOME.match(match["path"]), _HOME.match(file)
    is_elsewhere = own is None and file.startswith("/") and _NOT_OF_LINUX.match(match["path"]) is not None
    if home is not None and (is_elsewhere or (own is not None and _folded(own[0]) != _folded(home[0]))):
        values |= {"foreign": home[0], "here": parent_of(file)}
    return values


def _folded(home: str) -> str:
    """A home without what Windows writes in several ways."""
    return re.sub(r"[\\/]+", "/", home).lower() if ":" in home else home
