"""What GPUs can do by design: rates by compute capability, and the data sheets of current NVIDIA GPUs."""

from collections.abc import Mapping
from typing import Final, NamedTuple

RATES: Final[Mapping[str, Mapping[str, int]]] = {
    "7.0": {"fp64": 64, "fp32": 128, "fp16": 1024},
    "7.5": {"fp64": 4, "fp32": 128, "fp16": 1024, "int8": 2048},
    "8.0": {"fp64": 128, "fp32": 128, "tf32": 1024, "fp16": 2048, "bf16": 2048, "int8": 4096},
    "8.6": {"fp64": 4, "fp32": 256, "tf32": 512, "fp16": 1024, "bf16": 1024, "int8": 2048},
    "8.9": {"fp64": 4, "fp32": 256, "tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048, "int8": 2048},
    "9.0": {"fp64": 256, "fp32": 256, "tf32": 2048, "fp16": 4096, "bf16": 4096, "fp8": 8192, "int8": 8192},
    "10.0": {"fp64": 128, "fp32": 256, "tf32": 4096, "fp16": 8192, "bf16": 8192, "fp8": 16384, "int8": 16384},
    "12.0": {"fp64": 4, "fp32": 256, "tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048, "int8": 2048},
}
"""Dense operations per clock and multiprocessor, with tensor cores where the type has them; a multiply-add is two. From
data sheets divided by multiprocessors and clock, and the CUDA programming guide; workloads have the same table."""
GEFORCE_HALVES: Final = frozenset({"tf32", "fp16", "bf16", "fp8"})
"""Types whose tensor rate is half on GeForce GPUs, which accumulate in 32 bits at half the rate."""
_TENSOR_CORES: Final = {"7.0": 1, "7.2": 1, "7.5": 2, "8.0": 3, "8.6": 3, "8.7": 3, "8.9": 4, "9.0": 4, "10.0": 5,
                        "10.3": 5, "12.0": 5, "12.1": 5}  # fmt: skip
_PRECISIONS: Final = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")


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


MODELS: Final = tuple(GpuModel(*row) for row in (
    ("V100 SXM2", "7.0", 80, 32, 900, 15.7, 125, 300, 300, "data-center/v100"),
    ("T4", "7.5", 40, 16, 320, 8.1, 65, 0, 70, "data-center/tesla-t4"),
    ("A100 SXM4 40GB", "8.0", 108, 40, 1555, 19.5, 312, 600, 400, "data-center/a100"),
    ("A100 SXM4 80GB", "8.0", 108, 80, 2039, 19.5, 312, 600, 400, "data-center/a100"),
    ("A10", "8.6", 72, 24, 600, 31.2, 125, 0, 150, "data-center/products/a10-gpu"),
    ("RTX 3090", "8.6", 82, 24, 936, 35.6, 71, 112, 350, "geforce/graphics-cards/30-series"),
    ("L4", "8.9", 58, 24, 300, 30.3, 121, 0, 72, "data-center/l4"),
    ("L40S", "8.9", 142, 48, 864, 91.6, 362, 0, 350, "data-center/l40s"),
    ("RTX 4090", "8.9", 128, 24, 1008, 82.6, 165, 0, 450, "geforce/graphics-cards/40-series"),
    ("H100 PCIe", "9.0", 114, 80, 2000, 51, 756, 600, 350, "data-center/h100"),
    ("H100 SXM5", "9.0", 132, 80, 3350, 67, 989, 900, 700, "data-center/h100"),
    ("H200 SXM", "9.0", 132, 141, 4800, 67, 989, 900, 700, "data-center/h200"),
    ("B200", "10.0", 148, 180, 7700, 75, 2250, 1800, 1000, "data-center/dgx-b200"),
    ("RTX 5090", "12.0", 170, 32, 1792, 104.8, 209, 0, 575, "geforce/graphics-cards/50-series"),
))  # fmt: skip
"""Values of NVIDIA's public data sheets, without sparsity; collected by hand, and not yet compared with them again."""
_OTHER_MODELS: Final = frozenset({"D", "LAPTOP", "NVL", "SUPER", "TI"})
"""Words in the names of other models than those of the table."""


def tensor_core_generation(compute_capability: str | None) -> int | None:
    """The generation of the tensor cores; None if there are none, or the capability is unknown."""
    return _TENSOR_CORES.get(compute_capability or "")


def peak_rates(name: str | None, compute_capability: str | None, sm_count: int | None, hertz: float | None) -> Mapping[
    str, float
]:  # fmt: skip
    """Dense operations per second at a clock, by precision; empty if a value or the capability is unknown."""
    rates = RATES.get(compute_capability or "")
    if rates is None or sm_count is None or hertz is None:
        return {}
    halves = GEFORCE_HALVES if "GeForce" in (name or "") and (compute_capability or "")[0] != "9" else frozenset[str]()
    return {
        precision: rates[precision] * sm_count * hertz / (2 if precision in halves else 1)
        for precision in _PRECISIONS
        if precision in rates
    }


def model_of(name: str | None, compute_capability: str | None, memory_bytes: int | None) -> GpuModel | None:
    """The data sheet of a GPU: of its capability, with its first word in the name, and the nearest memory."""
    words = (name or "").upper().replace("-", " ").split()
    fits = [
        model
        for model in MODELS
        if model.compute_capability == compute_capability
        and all(word.upper() in words for word in model.name.split()[: 1 + model.name.startswith("RTX")])
        and not _OTHER_MODELS.intersection(words)
        and ("PCIE" in words) == (model.name.endswith("PCIe"))
    ]
    size = (memory_bytes or 0) / 1e9
    return min(fits, key=lambda model: abs(model.memory_gigabytes - size), default=None)
