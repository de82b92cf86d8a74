"""Code for the place where the program ran: Windows has other commands than Linux, and a notebook has cells."""

import re
from collections.abc import Iterable
from typing import Final

from gpumon.errors.lazy_pattern import lazy_pattern

WINDOWS: Final = "Windows"
NOTEBOOK: Final = "notebook"

_WINDOWS_TEXT: Final = lazy_pattern(
    r"(?<![A-Za-z0-9])[A-Za-z]:\\{1,2}[\w .]|\bWinError\b|\w\.dll\b|\bDLL load failed|Microsoft \(R\) C"
    r"|'(?:gbk|charmap)' codec"
)
"""What only a log from Windows contains: the path of a file with its drive, or the name of a library."""
_LINUX_TEXT: Final = lazy_pattern(r"(?<![\w.:/\\])/(?:usr|home|opt|root|mnt|tmp|workspace|nix|data)/|\.so\b")
"""What a log from Linux contains, also in WSL, which has paths of both."""
_NOTEBOOK_TEXT: Final = lazy_pattern(
    r"<ipython-input-|/ipykernel_\d|\bCell In ?\[\d|<cell line: \d|https://localhost:8080/#"
)
_SHELL: Final = lazy_pattern(r"(?:nvidia-smi|python|ls|df|du|hf|git|head|rm|cat|free|grep|c\+\+filt|find)\s[^\n]*")
_VARIABLES: Final = lazy_pattern(r"(?P<variables>(?:[A-Z][A-Z0-9_]*=\S* )+)(?P<command>[a-z][^\n]*)")
_CHANGES_LINUX: Final = lazy_pattern(
    r"(?:^|[|;&(] {0,4})(?:sudo|apt-get|ulimit|ldconfig|modprobe|srun|sbatch|systemctl|docker|ln)\b"
    r"|LD_LIBRARY_PATH|LIBRARY_PATH=|/(?:dev|proc)/",
    re.MULTILINE,
)
"""Commands for what exists only on Linux."""
_SHOWS: Final = lazy_pattern(
    r"(?:^|[|;&(] {0,4})(?:dmesg|df|du|free|find|ldd|lsof|grep|head|journalctl|strace|gdb|bash|c\+\+filt|rm|unset|which"
    r"|export)(?= (?!=))|/(?:tmp|usr|etc)/|\$\((?!python -c )",
    re.MULTILINE,
)
"""Commands that have another name on Windows; what they are for is possible there too."""
_ASSIGNMENT: Final = lazy_pattern(r"([A-Z][A-Z\d_]*)=(\"[^\"\n]*\"|'[^'\n]*'|\S*) ")
_ASSIGNMENTS: Final = lazy_pattern(rf"(?P<names>(?:{_ASSIGNMENT.pattern})+)(?=[a-z])")
_EXPORT: Final = lazy_pattern(r"^export (?P<name>[A-Z_]+\d?)=(?P<value>[\w:,-]+)$")
_EXTRACT: Final = lazy_pattern(r" \| grep -o .*$")
_FILTER: Final = lazy_pattern(r"\| grep(?: -[iE])* (?P<text>\w+|'[^'\n]*')")
_LISTING: Final = lazy_pattern(r"\bls -l\w? ")


def platform_of(lines: Iterable[str]) -> str:
    """Where the program ran, if that is Windows or a notebook; empty for others."""
    text = "\n".join(lines)
    if _WINDOWS_TEXT.search(text) is not None and _LINUX_TEXT.search(text) is None:
        return WINDOWS
    return NOTEBOOK if _NOTEBOOK_TEXT.search(text) is not None else ""


def for_notebook(code: str) -> tuple[str, str]:
    """The code as cells of a notebook, and what else to do."""
    match = _VARIABLES.fullmatch(code)
    if match is not None and "train.py" in match["command"]:
        settings = "\n".join(f"%env {variable}" for variable in match["variables"].split())
        return settings, " Set it in the first cell, after a restart of the kernel."
    pip = code.removeprefix("python -m ")
    if pip.startswith("pip install"):
        return f"%{pip}", " Then restart the kernel."
    return (f"!{code}" if _SHELL.fullmatch(code) else code), ""


def is_for_linux(code: str) -> bool:
    """Whether the code changes what exists only on Linux."""
    return _CHANGES_LINUX.search(code) is not None


def for_windows(code: str) -> str:
    """The code for Windows, or an empty text if it is only for Linux."""
    assignments = _ASSIGNMENTS.match(code)
    if assignments is not None:
        pairs = (pair for pair in _ASSIGNMENT.findall(assignments["names"]) if not pair[1].startswith("/usr/"))
        names = "".join(f"$env:{name} = {_quoted(value)}; " for name, value in pairs)
        code = f"{names}{code[assignments.end() :]}"
    code = _EXPORT.sub(r"$env:\g<name> = '\g<value>'", _EXTRACT.sub("", code))
    code = _LISTING.sub("dir ", _FILTER.sub(r"| Select-String \g<text>", code))
    code = code.replace('"$CUDA_VISIBLE_DEVICES"', '"$env:CUDA_VISIBLE_DEVICES"')
    if _CHANGES_LINUX.search(code):
        return code
    return "" if _SHOWS.search(code) else code.replace(" && ", "; ")  # PowerShell 5 has no &&


def _quoted(value: str) -> str:
    return value if value.startswith(("'", '"')) and value[-1] == value[0] else f"'{value}'"
