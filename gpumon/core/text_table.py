"""Tables that are text files of a package: one row per line, without comments and blank lines."""

from collections.abc import Sequence
from functools import cache
from pkgutil import get_data


@cache
def table(package: str, name: str) -> Sequence[str]:
    """The rows of a file, which is in a zip file on a host without gpumon.

    Args:
        package: The package with the file, such as ``gpumon.core``.
        name: The name of the file without its ending.
    """
    text = get_data(package, f"{name}.txt") or b""
    return [line for line in text.decode().splitlines() if line and not line.startswith("#")]
