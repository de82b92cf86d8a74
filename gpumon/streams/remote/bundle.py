"""The collector for a host where gpumon is not installed: a zip file of about 200 KiB, or a text for an old Python."""

import io
import zipfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from gpumon.core.metrics import METRICS
from gpumon.streams.remote import old_python

_PACKAGE: Final = Path(__file__).resolve().parents[2]
_ZIP_PYTHON: Final = (3, 10)
_REDUCED_PYTHON: Final = (3, 6)
_PARTS: Final = ("__init__.py", "core/*.py", "core/*.txt", "collect/*.py", "collect/*.txt")


def collector_for(version: str) -> bytes | None:
    """The collector for a Python, or None if it is too old.

    Args:
        version: Its version, such as ``3.8``.

    Raises:
        ModuleNotFoundError: The binding of NVML is not installed here.
    """
    try:
        major, minor = map(int, version.split("."))
    except ValueError:
        return None
    if (major, minor) >= _ZIP_PYTHON:
        return collector_bundle()
    return reduced_collector() if (major, minor) >= _REDUCED_PYTHON else None


@cache
def reduced_collector() -> bytes:
    """The text of the reduced collector, with the metrics that it does not read."""
    not_read = sorted(set(METRICS) - set(old_python.METRICS))
    return f"{Path(old_python.__file__).read_text()}\nNOT_READ = {not_read!r}\n".encode()


@cache
def collector_bundle() -> bytes:
    """The modules of the collector, and NVIDIA's binding of NVML.

    Raises:
        ModuleNotFoundError: The binding is not installed here.
    """
    binding = find_spec("pynvml")
    if binding is None or binding.origin is None:
        raise ModuleNotFoundError("nvidia-ml-py")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as bundle:
        for pattern in _PARTS:
            for file in sorted(_PACKAGE.glob(pattern)):
                bundle.write(file, Path("gpumon") / file.relative_to(_PACKAGE))
        bundle.write(binding.origin, "pynvml.py")
    return buffer.getvalue()
