"""The cases: what each training run needs, why it is slow, and what `gpumon why` may answer."""

from dataclasses import dataclass
from typing import Final

# The classes in the JSON of `gpumon why`.
DATA: Final = "data"
SYNC: Final = "synchronization"
HOST: Final = "host"
IDLE: Final = "idle"
COPIES: Final = "copies"
COMMUNICATION: Final = "communication"
TENSOR: Final = "tensor_cores"
SIMT: Final = "without_tensor_cores"
MEMORY: Final = "memory_bound"
OTHER_COMPUTE: Final = "other_compute"
CPU_MATMUL: Final = "cpu_matmul"
CPU_OPERATORS: Final = "cpu_operators"
CPU_OUTSIDE: Final = "cpu_outside"

ANY: Final = "cpu_ok"
CUDA: Final = "cuda"
TWO_RANKS: Final = "two_ranks"
"""Two GPUs, or two processes with gloo on the CPU."""
TWO_GPUS: Final = "two_gpus"

LOADING: Final = "loading"
HOST_LOOP: Final = "host_loop"
KERNELS: Final = "kernels"
DEVICE_MEMORY: Final = "device_memory"
RANKS: Final = "ranks"
CONTENTION: Final = "contention"
HEALTHY: Final = "healthy"


@dataclass(frozen=True)
class Case:
    """A training run.

    Attributes:
        name: The name of its function.
        module: The file in `training` that contains the function.
        needs: `ANY`, `CUDA`, `TWO_RANKS` or `TWO_GPUS`.
        reason: Why it is slow, as a clause; of a healthy case what it does.
        causes: The classes that are right as the main cause; empty for a healthy case. Several are equally right.
        kinds: The finer causes that are right.
        is_cure_complete: Whether the cure removes the cause entirely, so that the predicted bound can be tested.
        environment: Variables of the slow run.
        is_cpu_only: Whether it runs on the CPU even on a host with GPUs.
        straggler: The rank that the others wait for, which `gpumon why --job` must name; None if there is none.
    """

    name: str
    module: str
    needs: str
    reason: str
    causes: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    is_cure_complete: bool = False
    environment: tuple[tuple[str, str], ...] = ()
    is_cpu_only: bool = False
    straggler: int | None = None

    @property
    def has_ranks(self) -> bool:
        """Whether it is a job of several ranks."""
        return self.needs in {TWO_RANKS, TWO_GPUS}

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is to be found."""
        return self.module == HEALTHY

    def accepts(self, name: str, kind: str) -> bool:
        """Whether a cause is the planted one: its class is right, and its kind is not that of another case."""
        is_other_kind = bool(self.kinds) and kind in KNOWN_KINDS and kind not in self.kinds
        return kind in self.kinds or (name in self.causes and not is_other_kind)


_HOST: Final = (HOST, CPU_OUTSIDE)
"""Time of Python or of waiting in the loop; the second is its class without a GPU."""

CASES: Final = (
    Case("few_workers", LOADING, ANY, "one worker reads what needs many", (DATA,), ("few_workers",), True),
    Case("decode_in_main", LOADING, ANY, "samples are decoded in the main process", (DATA,), ("main_process",), True),
    Case("restarted_workers", LOADING, ANY, "every short epoch starts the workers again", (DATA,), ("worker_start",)),
    Case("slow_log", HOST_LOOP, ANY, "every step waits for the disk to write a log", _HOST, ("disk",), True),
    Case("python_metrics", HOST_LOOP, ANY, "a metric is computed in Python in every step", _HOST, ("python",), True),
    Case("rate_limit", HOST_LOOP, ANY, "the loop sleeps in every step", (*_HOST, IDLE), ("sleep",), True),
    Case("lock", HOST_LOOP, ANY, "the loop waits for a lock of another thread", (*_HOST, IDLE), ("lock",), True),
    Case("collections", HOST_LOOP, ANY, "gc.collect() visits a large object graph in every step", _HOST, ("gc",), True),
    Case("checkpoints", HOST_LOOP, ANY, "a checkpoint every few steps", (*_HOST, COPIES, SYNC), ("checkpoint", "disk")),
    Case(
        "state_copies",
        HOST_LOOP,
        ANY,
        "the state is copied to the host and duplicated in every step",
        (*_HOST, COPIES, SYNC, CPU_OPERATORS),
        ("copies", "checkpoint", "pageable"),
    ),
    Case(
        "evaluation",
        HOST_LOOP,
        ANY,
        "an evaluation of single samples in every step",
        (*_HOST, SYNC, CPU_OPERATORS),
        ("evaluation", "small_kernels", "item_per_step"),
    ),
    Case("anomaly_mode", HOST_LOOP, ANY, "anomaly detection is left on", (*_HOST, SYNC), ("anomaly_mode",)),
    Case("recompiles", HOST_LOOP, ANY, "torch.compile compiles again for every shape", _HOST, ("recompiles",), True),
    Case(
        "tiny_batch",
        HOST_LOOP,
        ANY,
        "batches of two samples",
        (*_HOST, MEMORY, CPU_OPERATORS),
        ("tiny_batch", "small_kernels"),
    ),
    Case("many_items", KERNELS, CUDA, ".item() for every sample of a batch", (SYNC,), ("item_per_step",), True),
    Case(
        "synchronize",
        KERNELS,
        CUDA,
        "torch.cuda.synchronize() after every layer",
        (SYNC, HOST),
        ("synchronize", "item_per_step"),
    ),
    Case(
        "launch_blocking",
        KERNELS,
        CUDA,
        "CUDA_LAUNCH_BLOCKING is set",
        (HOST, SYNC),
        ("debugging",),
        environment=(("CUDA_LAUNCH_BLOCKING", "1"),),
    ),
    Case("small_kernels", KERNELS, CUDA, "hundreds of kernels, shorter than their launch", (HOST,), ("small_kernels",)),
    Case("fp32_matmul", KERNELS, CUDA, "fp32 matrix products without TF32", (SIMT,), ("no_tf32",)),
    Case("fp32_model", KERNELS, CUDA, "TF32 where bf16 fits", (TENSOR, SIMT, MEMORY), ("no_bf16", "no_tf32")),
    Case("elementwise", KERNELS, ANY, "a chain of elementwise operators", (MEMORY, CPU_OPERATORS), ("elementwise",)),
    Case(
        "benchmarking",
        KERNELS,
        CUDA,
        "cudnn.benchmark tries all algorithms for every new shape",
        (HOST, SYNC, OTHER_COMPUTE),
        ("cudnn_benchmark",),
    ),
    Case("pageable_copies", DEVICE_MEMORY, CUDA, "large copies from pageable memory", (COPIES,), ("pageable",), True),
    Case(
        "no_overlap", DEVICE_MEMORY, CUDA, "copies that do not overlap with compute", (COPIES,), ("no_overlap",), True
    ),
    Case(
        "tiny_copies",
        DEVICE_MEMORY,
        CUDA,
        "hundreds of copies of single numbers",
        (COPIES, SYNC, HOST),
        ("tiny_copies", "pageable", "copies"),
    ),
    Case(
        "empty_cache",
        DEVICE_MEMORY,
        CUDA,
        "torch.cuda.empty_cache() in every step",
        (SYNC, HOST),
        ("empty_cache",),
        True,
    ),
    Case(
        "allocator_retries",
        DEVICE_MEMORY,
        CUDA,
        "the allocator frees its cache in every step because memory is nearly full",
        (SYNC, HOST),
        ("allocator_retries",),
    ),
    Case(
        "more_data",
        RANKS,
        TWO_RANKS,
        "rank 1 has four times the data",
        (COMMUNICATION,),
        ("straggler",),
        True,
        straggler=1,
    ),
    Case(
        "slower_rank",
        RANKS,
        TWO_RANKS,
        "the GPU of rank 1 is slower",
        (COMMUNICATION,),
        ("straggler",),
        True,
        straggler=1,
    ),
    Case(
        "slower_loader",
        RANKS,
        TWO_RANKS,
        "the worker of rank 1 reads more slowly",
        (COMMUNICATION,),
        ("straggler",),
        True,
        straggler=1,
    ),
    Case(
        "shared_rank",
        RANKS,
        TWO_GPUS,
        "another process works on the GPU of rank 1",
        (COMMUNICATION,),
        ("straggler",),
        True,
        straggler=1,
    ),
    Case("tiny_buckets", RANKS, TWO_RANKS, "a bucket for every parameter", (COMMUNICATION, *_HOST), ("small_buckets",)),
    Case(
        "unused_parameters",
        RANKS,
        TWO_RANKS,
        "DistributedDataParallel looks for unused parameters",
        (COMMUNICATION, SYNC, *_HOST),
        ("unused_parameters",),
    ),
    Case("unbalanced_fsdp", RANKS, TWO_GPUS, "one FSDP unit gathers all layers at once", (COMMUNICATION,), ("fsdp",)),
    Case(
        "cpu_contention",
        CONTENTION,
        ANY,
        "other processes need all CPU cores",
        (*_HOST, CPU_MATMUL, CPU_OPERATORS),
        ("cpu_contention",),
        True,
    ),
    Case(
        "shared_gpu",
        CONTENTION,
        CUDA,
        "another process works on the same GPU",
        (IDLE, TENSOR, HOST, SYNC),
        ("gpu_shared",),
        True,
    ),
    Case(
        "too_many_threads",
        CONTENTION,
        ANY,
        "torch uses many more threads than there are cores",
        (HOST, CPU_MATMUL, CPU_OPERATORS, CPU_OUTSIDE),
        ("cpu_contention", "threads"),
        True,
        is_cpu_only=True,
    ),
    Case("bf16_transformer", HEALTHY, CUDA, "bf16 transformer blocks with scaled_dot_product_attention"),
    Case("channels_last", HEALTHY, CUDA, "a convolutional network, channels_last, with autocast"),
    Case("cuda_graph", HEALTHY, CUDA, "a step that is one CUDA graph"),
    Case("compiled", HEALTHY, CUDA, "a model in torch.compile"),
    Case("default_ddp", HEALTHY, TWO_GPUS, "DistributedDataParallel with its default buckets"),
    Case("preloaded_mlp", HEALTHY, ANY, "an MLP on the CPU, with all data in memory", is_cpu_only=True),
    Case("preloaded_convolutions", HEALTHY, ANY, "convolutions on the CPU, with all data in memory", is_cpu_only=True),
    Case("good_loader", HEALTHY, ANY, "a large MLP, in bf16 on a GPU, with workers that keep up"),
    Case("trainer", HEALTHY, ANY, "the Trainer of transformers"),
    Case("accumulation", HEALTHY, ANY, "an optimizer step after four batches"),
    Case("variable_lengths", HEALTHY, ANY, "sequences of different lengths"),
)
KNOWN_KINDS: Final = frozenset(kind for case in CASES for kind in case.kinds)
