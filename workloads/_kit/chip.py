"""Facts of the GPU that a workload runs on, as torch and the CUDA driver library tell them."""

from __future__ import annotations

import ctypes
from dataclasses import asdict, dataclass
from typing import Any, Optional

from _kit.events import NotHereError

_CLOCK_RATE = 13
_MEMORY_CLOCK_RATE = 36
_MEMORY_BUS_WIDTH = 37
_L2_CACHE_SIZE = 38
_MAX_THREADS_PER_SM = 39
"""CUdevice_attribute of cuda.h; the clocks are in kHz, the width in bits."""


@dataclass(frozen=True)
class Chip:
    """One GPU.

    Attributes:
        ordinal: CUDA's index of it in this process.
        name: Product name.
        uuid: With NVML's prefix ``GPU-``, or None where torch is too old to tell.
        pci_bus_id: As sysfs writes it, such as ``0000:1b:00.0``, or None.
        capability: Compute capability, major and minor.
        sm_count: Streaming multiprocessors.
        memory_bytes: Device memory.
        clock_hertz: Highest SM clock, or None.
        memory_clock_hertz: Memory clock, before doubling for double data rate, or None.
        memory_bus_bits: Width of the memory bus, or None.
        l2_bytes: Second-level cache, or None.
        max_threads_per_sm: Threads that a multiprocessor holds at once, or None.
    """

    ordinal: int
    name: str
    uuid: Optional[str]
    pci_bus_id: Optional[str]
    capability: tuple[int, int]
    sm_count: int
    memory_bytes: int
    clock_hertz: Optional[float]
    memory_clock_hertz: Optional[float]
    memory_bus_bits: Optional[int]
    l2_bytes: Optional[int]
    max_threads_per_sm: Optional[int]

    def document(self) -> dict[str, Any]:
        """As it stands in the plan."""
        return asdict(self)


def chip_of(torch: Any, ordinal: int) -> Chip:
    """The facts of a GPU.

    Raises:
        NotHereError: This torch cannot use it; the text says why and what to do.
    """
    _require_cuda(torch, ordinal)
    properties = torch.cuda.get_device_properties(ordinal)
    capability = (int(properties.major), int(properties.minor))
    _require_code_for(torch, properties.name, capability)
    driver = _driver()
    clock, memory_clock = _attribute(driver, ordinal, _CLOCK_RATE), _attribute(driver, ordinal, _MEMORY_CLOCK_RATE)
    uuid = getattr(properties, "uuid", None)
    return Chip(
        ordinal=ordinal,
        name=str(properties.name),
        uuid=None if uuid is None else f"GPU-{str(uuid).removeprefix('GPU-')}",
        pci_bus_id=_pci_bus_id(driver, ordinal),
        capability=capability,
        sm_count=int(properties.multi_processor_count),
        memory_bytes=int(properties.total_memory),
        clock_hertz=None if clock is None else clock * 1e3,
        memory_clock_hertz=None if memory_clock is None else memory_clock * 1e3,
        memory_bus_bits=_attribute(driver, ordinal, _MEMORY_BUS_WIDTH),
        l2_bytes=_attribute(driver, ordinal, _L2_CACHE_SIZE),
        max_threads_per_sm=_attribute(driver, ordinal, _MAX_THREADS_PER_SM),
    )


def _require_cuda(torch: Any, ordinal: int) -> None:
    if torch.version.cuda is None:
        build = "ROCm" if getattr(torch.version, "hip", None) else "the CPU"
        raise NotHereError(
            f"torch {torch.__version__} is a build for {build}. Install a build with CUDA (pytorch.org/get-started), "
            "or choose another interpreter with --python, or run it with --device cpu."
        )
    count = int(torch.cuda.device_count())
    if count == 0:
        raise NotHereError(
            f"torch {torch.__version__} (CUDA {torch.version.cuda}) finds no GPU. Look at CUDA_VISIBLE_DEVICES, and at "
            "whether the driver is new enough for this CUDA (gpumon status tells its version)."
        )
    if ordinal >= count:
        last = count - 1
        raise NotHereError(f"There is no cuda:{ordinal}; CUDA shows {count} here. Choose cuda:0 to cuda:{last}.")
    try:
        torch.cuda.init()
    except RuntimeError as error:
        raise NotHereError(f"torch cannot start CUDA: {str(error).splitlines()[0]}") from error


def _require_code_for(torch: Any, name: str, capability: tuple[int, int]) -> None:
    """Whether this build of torch has code for the chip: a binary of its family, or PTX that the driver can compile."""
    architectures = [str(each) for each in torch.cuda.get_arch_list()]
    if not architectures or can_run(architectures, capability):
        return
    major, minor = capability
    raise NotHereError(
        f"torch {torch.__version__} has no code for {name} (compute capability {major}.{minor}; it was built for "
        f"{', '.join(architectures)}). Install a build of torch whose list holds sm_{major}{minor}."
    )


def can_run(architectures: list[str], capability: tuple[int, int]) -> bool:
    """Whether one of ``sm_90``, ``sm_90a``, ``compute_80`` and so on serves a chip of that capability."""
    for architecture in architectures:
        kind, _, digits = architecture.partition("_")
        exact = digits.endswith(("a", "f"))
        digits = digits.rstrip("af")
        if not digits.isdecimal():
            continue
        built = (int(digits[:-1]), int(digits[-1]))
        if kind == "compute" and built <= capability and not exact:
            return True
        if kind == "sm" and built[0] == capability[0] and (built[1] == capability[1] if exact else built <= capability):
            return True
    return False


def _driver() -> Any:
    """The CUDA driver library, which torch has loaded already; None where it cannot be reached."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def _attribute(driver: Any, ordinal: int, attribute: int) -> Optional[int]:
    if driver is None:
        return None
    value, device = ctypes.c_int(), ctypes.c_int()
    if driver.cuDeviceGet(ctypes.byref(device), ordinal):
        return None
    if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) or value.value <= 0:
        return None
    return value.value


def _pci_bus_id(driver: Any, ordinal: int) -> Optional[str]:
    if driver is None:
        return None
    text, device = ctypes.create_string_buffer(32), ctypes.c_int()
    if driver.cuDeviceGet(ctypes.byref(device), ordinal):
        return None
    if driver.cuDeviceGetPCIBusId(text, len(text), device):
        return None
    return text.value.decode().lower()
