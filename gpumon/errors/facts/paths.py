"""A path that is missing: its folder, and whether it is of another user or host than the program."""

import re
from typing import Final

from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.raised import TracebackFrame

_LAST: Final = r"[\\/][^\\/]*$"
_PATH: Final = lazy_pattern(
    r"""(?i:no such file|not found|exist).*['"](?P<path>(?P<home>/(?:home|Users|media|Volumes)/[^/'"\s]+"""
    r"""|/(?:root|content|kaggle)\b|[A-Za-z]:[\\/](?:Users[\\/]{1,2}[^\\/'"]+)?|)[^'"\n]*[\w.-])['"]\)?$"""
)


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
    is_absolute = file.startswith("/") or file[1:2] == ":"
    if match["home"] and is_absolute and not file.startswith(match["home"]):
        values |= {"foreign": match["home"], "here": re.sub(_LAST, "", file)}
    return values
