"""Properties of the GPU that a workload runs on, from torch and the CUDA driver library."""

from __future__ import annotations

import ctypes
from dataclasses import asdict, dataclass
from typing import Any, Optional

from _kit.events import UnsupportedError

_CLOCK_RATE = 13
_MEMORY_CLOCK_RATE = 36
_MEMORY_BUS_WIDTH = 37
_L2_CACHE_SIZE = 38
_MAX_THREADS_PER_SM = 39
"""Values of CUdevice_attribute in cuda.h; clocks are in kHz, the bus width is in bits."""


@dataclass(frozen=True)
class Chip:
    """One GPU.

    Attributes:
        ordinal: CUDA index of the GPU in this process.
        name: Product name.
        uuid: With NVML's prefix ``GPU-``, or None if this torch does not report it.
        pci_bus_id: In the notation of sysfs, such as ``0000:1b:00.0``, or None.
        capability: Compute capability, major and minor.
        sm_count: Streaming multiprocessors.
        memory_bytes: Device memory.
        clock_hertz: Maximum SM clock, or None.
        memory_clock_hertz: Memory clock, before doubling for double data rate, or None.
        memory_bus_bits: Width of the memory bus, or None.
        l2_bytes: Size of the L2 cache, or None.
        max_threads_per_sm: Maximum resident threads per multiprocessor, or None.
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
        """Returns the fields as they are sent in the plan event."""
        return asdict(self)


def chip_of(torch: Any, ordinal: int, *, can_use_cpu: bool = True) -> Chip:
    """Returns the properties of a GPU.

    Raises:
        UnsupportedError: This torch cannot use the GPU; the text gives the reason and the fix.
    """
    _require_cuda(torch, ordinal, can_use_cpu=can_use_cpu)
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


def _require_cuda(torch: Any, ordinal: int, *, can_use_cpu: bool) -> None:
    if torch.version.cuda is None:
        build = "ROCm" if getattr(torch.version, "hip", None) else "the CPU"
        raise UnsupportedError(
            f"torch {torch.__version__} was built for {build}. Install a build with CUDA (pytorch.org/get-started), or "
            f"choose another interpreter with --python{', or use --device cpu' if can_use_cpu else ''}."
        )
    count = int(torch.cuda.device_count())
    if count == 0:
        raise UnsupportedError(
            f"torch {torch.__version__} (CUDA {torch.version.cuda}) finds no GPU. Check CUDA_VISIBLE_DEVICES, and "
            "whether the driver supports this CUDA version (gpumon status shows both)."
        )
    if ordinal >= count:
        last = count - 1
        raise UnsupportedError(f"cuda:{ordinal} does not exist: CUDA shows {count} here. Choose cuda:0 to cuda:{last}.")
    try:
        torch.cuda.init()
    except RuntimeError as error:
        raise UnsupportedError(f"torch cannot initialize CUDA: {str(error).splitlines()[0]}") from error


def _require_code_for(torch: Any, name: str, capability: tuple[int, int]) -> None:
    """Checks that this build of torch has a binary for the GPU, or PTX that the driver can compile."""
    architectures = [str(architecture) for architecture in torch.cuda.get_arch_list()]
    if not architectures or can_run(architectures, capability):
        return
    major, minor = capability
    raise UnsupportedError(
        f"torch {torch.__version__} has no kernels for {name} (compute capability {major}.{minor}; built for "
        f"{', '.join(architectures)}). Install a build of torch that lists sm_{major}{minor}."
    )


def can_run(architectures: list[str], capability: tuple[int, int]) -> bool:
    """Returns whether one of the architectures, such as ``sm_90`` or ``compute_80``, runs on the compute capability."""
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
    """Returns the CUDA driver library, which torch has already loaded, or None."""
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
