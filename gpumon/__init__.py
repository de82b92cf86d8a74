"""gpumon: a diagnostic terminal monitor for NVIDIA GPU hosts that train PyTorch models."""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

_FUNCTIONS = ("explain", "frames", "memory", "pick", "processes", "snapshot", "why")

if TYPE_CHECKING:
    from gpumon.api import explain as explain
    from gpumon.api import frames as frames
    from gpumon.api import memory as memory
    from gpumon.api import pick as pick
    from gpumon.api import processes as processes
    from gpumon.api import snapshot as snapshot
    from gpumon.api import why as why
else:

    def __getattr__(name: str) -> object:
        """A function of `gpumon.api`, imported at its first use: every process of gpumon imports this package."""
        if name not in _FUNCTIONS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from gpumon import api

        return getattr(api, name)
