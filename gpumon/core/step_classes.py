"""The classes that the time of a training step is divided into, and their names for people."""

from typing import Final

from gpumon.core.text_table import table

TENSOR: Final = "tensor_cores"
SIMT: Final = "without_tensor_cores"
MEMORY: Final = "memory_bound"
OTHER_COMPUTE: Final = "other_compute"
COMMUNICATION: Final = "communication"
COPIES: Final = "copies"
DATA: Final = "data"
SYNC: Final = "synchronization"
HOST: Final = "host"
IDLE: Final = "idle"
CPU_MATMUL: Final = "cpu_matmul"
CPU_OPERATORS: Final = "cpu_operators"
CPU_OUTSIDE: Final = "cpu_outside"

COLLECTION: Final = "garbage_collection"
CHECKPOINT: Final = "checkpoint"
LOGGING: Final = "logging"
SLEEP: Final = "sleep"
COMPILATION: Final = "compilation"
EMPTY_CACHE: Final = "empty_cache"
LOCKS: Final = "locks"
PROGRAMS: Final = "other_programs"
EVALUATION: Final = "evaluation"
ANOMALY: Final = "anomaly_detection"
PROFILER: Final = "profiler"
PREPARATION: Final = "data_preparation"
STATE_COPIES: Final = "state_copies"
FORWARD: Final = "forward"
BACKWARD: Final = "backward"
OPTIMIZER: Final = "optimizer"
PYTHON: Final = "python"
CORE_WAIT: Final = "waiting_for_core"
GIL_WAIT: Final = "waiting_for_gil"
GPU_WORK: Final = "gpu_work"
RUNNING: Final = "running"
WAITING: Final = "waiting"

GPU_CLASSES: Final = (TENSOR, SIMT, MEMORY, OTHER_COMPUTE, COMMUNICATION, COPIES, DATA, SYNC, HOST, IDLE)
"""The classes of a traced step on a GPU, in their order of precedence: at each moment the first one applies."""
COMPUTE: Final = (TENSOR, SIMT, MEMORY, OTHER_COMPUTE)
"""Those in which the GPU computes."""
CPU_CLASSES: Final = (DATA, CPU_MATMUL, CPU_OPERATORS, CPU_OUTSIDE)
"""The classes of a traced step without a GPU."""
SAMPLED_CLASSES: Final = (
    DATA, PREPARATION, COLLECTION, SYNC, COPIES, COMMUNICATION, CHECKPOINT, STATE_COPIES, LOGGING,
    PROGRAMS, SLEEP, LOCKS, GIL_WAIT, CORE_WAIT, COMPILATION, EMPTY_CACHE, ANOMALY, PROFILER,
    EVALUATION, PYTHON, FORWARD, BACKWARD, OPTIMIZER, GPU_WORK, HOST, IDLE, RUNNING, WAITING,
)  # fmt: skip
"""The classes of a step of which only the main thread was sampled."""
LABELS: Final = {name: label for name, _, label in (row.partition(" ") for row in table("gpumon.core", "step_classes"))}
"""The name of each class for people."""
