"""The collector as a zip file, for a host where gpumon is not installed: plain Python, about 200 KiB."""

import io
import zipfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).resolve().parents[2]
_PARTS: Final = ("__init__.py", "core/*.py", "core/*.txt", "collect/*.py")


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
