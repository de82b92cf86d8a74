"""gpumon: a diagnostic terminal monitor for NVIDIA GPU hosts that train PyTorch models."""

TYPE_CHECKING = False  # what type checkers take for typing's, whose import takes as long as the interpreter's start
__version__ = "0.1.0"
__all__ = [
    "Collector", "explain", "frames", "memory", "pick", "process", "processes", "recording", "select_devices",
    "send_signal", "snapshot", "why",
]  # fmt: skip

if TYPE_CHECKING:
    from gpumon.api import (
        Collector,
        explain,
        frames,
        memory,
        pick,
        process,
        processes,
        recording,
        select_devices,
        send_signal,
        snapshot,
        why,
    )
else:

    def __getattr__(name: str) -> object:
        """A function of `gpumon.api`, imported at its first use: every process of gpumon imports this package."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from gpumon import api

        return getattr(api, name)


def load_ipython_extension(shell) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - IPython's, which need not be installed
    """Add ``%%gpumem`` to a notebook: ``%load_ext gpumon``."""
    from gpumon.probe.notebook import gpumem

    shell.register_magic_function(lambda _, cell: gpumem(shell, cell), "cell", "gpumem")
