"""What GPUs can do by design, from `gpu_models.txt`: rates by compute capability, and data sheets of current GPUs."""

from collections.abc import Mapping
from functools import cache
from typing import Final, NamedTuple

from gpumon.core.text_table import table

GEFORCE_HALVES: Final = frozenset({"tf32", "fp16", "bf16", "fp8"})
"""Types whose tensor rate is half on GeForce GPUs, which accumulate in 32 bits at half the rate."""
_OTHER_MODELS: Final = frozenset({"D", "LAPTOP", "NVL", "SUPER", "TI"})
"""Words in the names of other models than those of the table."""


class Capability(NamedTuple):
    """What a multiprocessor of a compute capability has.

    Attributes:
        cores: FP32 cores.
        tensor_cores: Generation of the tensor cores; 0 without.
        rates: Dense operations per clock, by type; empty if unknown.
    """

    cores: int
    tensor_cores: int
    rates: Mapping[str, int]


class GpuModel(NamedTuple):
    """A GPU in its data sheet.

    Attributes:
        name: Product name.
        compute_capability: CUDA compute capability.
        sm_count: Streaming multiprocessors.
        memory_gigabytes: Device memory.
        memory_bandwidth: GB/s.
        fp32: TFLOP/s without tensor cores.
        bf16: TFLOP/s of tensor cores, dense; of fp16 before compute capability 8.0.
        nvlink: GB/s, both directions together; 0 without NVLink.
        power_watts: Maximum power.
        source: The data sheet, below nvidia.com.
    """

    name: str
    compute_capability: str
    sm_count: int
    memory_gigabytes: int
    memory_bandwidth: int
    fp32: float
    bf16: float
    nvlink: int
    power_watts: int
    source: str


@cache
def _rows(is_model: bool) -> list[list[str]]:
    rows = [[cell.strip() for cell in row.split("|")] for row in table("gpumon.core", "gpu_models")]
    return [row for row in rows if row[0][0].isalpha() == is_model]


@cache
def capabilities() -> Mapping[str, Capability]:
    """The compute capabilities that are known."""
    known = {}
    for capability, cores, generation, rates in _rows(is_model=False):
        words = rates.split()
        values = map(int, words[1::2])
        known[capability] = Capability(int(cores), int(generation), dict(zip(words[::2], values, strict=True)))
    return known


@cache
def models() -> tuple[GpuModel, ...]:
    """The data sheets, oldest architecture first."""
    kinds = GpuModel.__annotations__.values()
    return tuple(GpuModel(*(kind(cell) for kind, cell in zip(kinds, row, strict=True))) for row in _rows(is_model=True))


def cores_of(compute_capability: str | None, sm_count: int | None) -> int | None:
    """The FP32 cores of a GPU, or None if one of the two is unknown."""
    known = capabilities().get(compute_capability or "")
    return None if known is None or sm_count is None else known.cores * sm_count


def sm_count_of(compute_capability: str | None, core_count: float | None) -> int | None:
    """The streaming multiprocessors that have this number of FP32 cores, or None if one of the two is unknown."""
    known = capabilities().get(compute_capability or "")
    return None if known is None or core_count is None else round(core_count / known.cores)


def tensor_core_generation(compute_capability: str | None) -> int | None:
    """The generation of the tensor cores; None if there are none, or the capability is unknown."""
    known = capabilities().get(compute_capability or "")
    return (known and known.tensor_cores) or None


def peak_rates(
    name: str | None, compute_capability: str | None, sm_count: int | None, hertz: float | None
) -> Mapping[str, float]:
    """Dense operations per second at a clock, by type; empty if a value or the capability is unknown."""
    known = capabilities().get(compute_capability or "")
    if known is None or sm_count is None or hertz is None:
        return {}
    halves = GEFORCE_HALVES if "GeForce" in (name or "") else frozenset[str]()
    return {kind: rate * sm_count * hertz / (2 if kind in halves else 1) for kind, rate in known.rates.items()}


def model_of(name: str | None, compute_capability: str | None, memory_bytes: int | None) -> GpuModel | None:
    """The data sheet of a GPU: of its capability, with its first word in the name, and the nearest memory."""
    words = (name or "").upper().replace("-", " ").split()
    fits = [
        model
        for model in models()
        if model.compute_capability == compute_capability
        and all(word.upper() in words for word in model.name.split()[: 1 + model.name.startswith("RTX")])
        and not _OTHER_MODELS.intersection(words)
        and ("PCIE" in words) == (model.name.endswith("PCIe"))
    ]
    size = (memory_bytes or 0) / 1e9
    return min(fits, key=lambda model: abs(model.memory_gigabytes - size), default=None)
