"""The PyTorch of this process: whether it is initialized, its version and allocator, and its CUDA devices.

PyTorch is looked up in `sys.modules` and never imported, and no call creates a CUDA context.
"""

from __future__ import annotations

import os
import re
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

STATES = ("waiting_for_torch", "cpu_only", "waiting_for_cuda", "live")
"""Steps of PyTorch's initialization, in their order."""
_CONTEXT_CHECK_SECONDS = 5.0
_LOCKED_OBSERVERS = re.compile(r"[01]\.|2\.0\.")
"""Releases that call OOM observers while they hold the allocator's lock. A sample of the probe's thread waits for that
lock with the GIL held, so that an observer, which needs the GIL, would block the program forever."""


class _Missing:
    """Stands for a module that is not imported; it has no attributes."""


class Torch:
    """What the PyTorch of this process reports, as soon as the program has imported it."""

    def __init__(self) -> None:
        self._backend: str | None = None
        self._device_count: int | None = None
        self._devices: dict[int, tuple[dict[str, Any], int]] = {}
        self._contexts: set[int] = set()
        self._next_context_check = 0.0

    @property
    def state(self) -> str:
        """How far PyTorch is initialized, one of `STATES`."""
        torch, cuda, library = self._torch, self.cuda, self.library
        if torch is None or getattr(torch.__spec__, "_initializing", False) or cuda is None or library is None:
            return "waiting_for_torch"
        if not hasattr(library, "_cuda_memoryStats"):
            return "cpu_only"
        return "live" if vars(cuda)["is_initialized"]() else "waiting_for_cuda"

    @property
    def version(self) -> str | None:
        """Its version, or None while it is not imported."""
        version = vars(self._torch or _Missing).get("__version__")
        return None if version is None else str(version)

    @property
    def _torch(self) -> Any:
        return sys.modules.get("torch")

    @property
    def cuda(self) -> Any:
        """The module ``torch.cuda``, or None."""
        return sys.modules.get("torch.cuda")

    @property
    def library(self) -> Any:
        """The compiled module ``torch._C``, or None."""
        return vars(self._torch or _Missing).get("_C")

    def call_on_cuda_init(self, call: Callable[[], None]) -> bool:
        """Have PyTorch call a function when it creates its first CUDA context, before it allocates any memory.

        Returns:
            Whether this PyTorch accepts such calls.
        """
        queue = vars(self.cuda or _Missing).get("_queued_calls")
        if not isinstance(queue, list):
            return False
        queue.append((call, []))
        return True

    def observe_out_of_memory(self, observer: Callable[[int, int, int, int], None]) -> None:
        """Have PyTorch call an observer before it raises OutOfMemoryError.

        Call this only when there is a CUDA context: older releases would create one.
        """
        if not _LOCKED_OBSERVERS.match(self.version or ""):
            self.library._cuda_attach_out_of_memory_observer(observer)

    def ordinals(self) -> list[int]:
        """The devices on which this process has a CUDA context."""
        now = time.monotonic()
        if self._device_count is None:
            self._device_count = int(self.library._cuda_getDeviceCount())  # torch.cuda.device_count() may call NVML
        if now >= self._next_context_check:
            self._next_context_check = now + (_CONTEXT_CHECK_SECONDS if self._contexts else 0.0)
            has_context = self.library._cuda_hasPrimaryContext
            unused = set(range(self._device_count)) - self._contexts  # a context stays until the process ends
            self._contexts |= {ordinal for ordinal in unused if has_context(ordinal)}
        return sorted(self._contexts)

    def device_identity(self, ordinal: int) -> tuple[dict[str, Any], int]:
        """The UUID and name of a device, and the size of its memory in bytes. They never change."""
        if ordinal not in self._devices:
            properties = vars(self.cuda)["get_device_properties"](ordinal)
            uuid = getattr(properties, "uuid", None)
            names = {"uuid": None if uuid is None else f"GPU-{uuid}", "name": str(properties.name)}
            self._devices[ordinal] = (names, int(properties.total_memory))
        return self._devices[ordinal]

    @property
    def backend(self) -> str | None:
        """The allocator's backend, ``native`` or ``cudaMallocAsync``; None while there is no CUDA context."""
        if self._backend is None and self.state == "live":
            get_backend = getattr(self.library, "_cuda_getAllocatorBackend", None)
            self._backend = "native" if get_backend is None else str(get_backend())
        return self._backend

    @property
    def has_native_backend(self) -> bool:
        """Whether the allocator is PyTorch's own, which keeps statistics of its segments and blocks."""
        return self.backend != "cudaMallocAsync"

    @property
    def expandable_segments(self) -> bool | None:
        """Whether the allocator is set to use expandable segments; None while there is no CUDA context."""
        if self.backend is None:
            return None
        settings = getattr(self.library, "_accelerator_getAllocatorSettings", str)() or _environment_settings()
        return re.search(r"expandable_segments\s*:\s*(True|1)", str(settings)) is not None


def _environment_settings() -> str:
    return os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or ""
