"""What several entries say alike: how CUDA words an error, how to see more, what the cache has to do with it."""

import re
from typing import Final

from gpumon.diagnosis.known import Fix, Pattern

SIZE: Final = r"[\d.]{1,16} (?:bytes|[KMGT]iB)"
"""A size as PyTorch's allocator writes it."""

_SAYS_ERROR: Final = r"(?:CUDA error|CUDA driver error|Triton Error \[CUDA\]|CUDA failure \d{1,4}|Error \d{1,4}): "
"""What stands before the text: PyTorch, its calls of the driver, Triton, ONNX Runtime, the count of devices."""

CUDA_NOTES: Final = "https://docs.pytorch.org/docs/stable/notes/cuda.html"
MEMORY_NOTES: Final = "https://docs.pytorch.org/docs/stable/torch_cuda_memory.html"
MULTIPROCESSING_NOTES: Final = "https://docs.pytorch.org/docs/stable/notes/multiprocessing.html"
CUDA_ERRORS: Final = "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html"
CUDA_COMPATIBILITY: Final = "https://docs.nvidia.com/deploy/cuda-compatibility/"
SANITIZER_MANUAL: Final = "https://docs.nvidia.com/compute-sanitizer/ComputeSanitizer/index.html"
XID_CATALOG: Final = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"
PYTORCH_INSTALL: Final = "https://pytorch.org/get-started/locally/"

NO_MEMORY_MATTER: Final = "Does nothing here: the memory is not what failed."
CONTEXT_IS_DEAD: Final = "Cannot help: after this error it fails as every other CUDA call of the process does."
NO_CONTEXT_YET: Final = "Does nothing here: there is no CUDA context yet, so there is no cache."
BELOW_PYTORCH: Final = "Does nothing here: the fault lies below PyTorch, in the driver or the hardware."

LAUNCH_BLOCKING: Final = Fix(
    "Run once more with synchronous launches, so that the traceback points at the operation that failed.",
    "CUDA_LAUNCH_BLOCKING=1 python train.py",
)
CUDA_LOG: Final = Fix(
    "Let the driver say in words why it refused; this needs a driver for CUDA 12.9 or later.",
    "CUDA_LOG_FILE=stderr python train.py",
)
CPP_STACKTRACES: Final = Fix(
    "Show the C++ frames below the Python ones.",
    "TORCH_SHOW_CPP_STACKTRACES=1 python train.py",
)
SANITIZER: Final = Fix(
    "Let the sanitizer name kernel and address; without PyTorch's cache it sees the true end of every block.",
    "PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck python train.py",
)
KERNEL_LOG: Final = Fix("Look for an Xid in the kernel log of that time.", "sudo dmesg -T | grep -i xid")
MEMORY_SNAPSHOT: Final = Fix(
    "Record who allocates what, and save it when memory runs out, to be opened at docs.pytorch.org/memory_viz.",
    """\
import torch

torch.cuda.memory._record_memory_history()
try:
    train()
except torch.cuda.OutOfMemoryError:
    torch.cuda.memory._dump_snapshot("snapshot.pickle")
    raise""",
)
MEMORY_SUMMARY: Final = Fix(
    "Print what the allocator holds at the place where memory is tight.",
    "import torch\n\nprint(torch.cuda.memory_summary())",
)
VERSIONS: Final = Fix(
    "Show which PyTorch, CUDA, driver and GPU work together here.",
    "python -m torch.utils.collect_env",
)

RESTART: Final = Fix("Start the process or the notebook's kernel again: nothing else revives the context.")
WHO_HOLDS: Final = Fix(
    "See which processes hold memory, then end one of them or choose another GPU.",
    "nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv",
)
FIRST_RANK: Final = Fix("Find the rank that failed first: the earliest error over the logs of all ranks is the cause.")
OWN_LIBRARIES: Final = Fix(
    "Let PyTorch find the CUDA libraries it came with rather than those of the system.",
    "unset LD_LIBRARY_PATH",
)
RESET_GPU: Final = Fix(
    "End every process on the GPU and reset it; where NVSwitch joins the GPUs, reset all of them, without -i.",
    "sudo nvidia-smi --gpu-reset -i 0",
)

LINKS: Final = Fix("See the state of the links and their error counters.", "nvidia-smi nvlink -s; nvidia-smi nvlink -e")
LOWER_POWER: Final = Fix(
    "Lower the power limit, which shows whether power is the cause.", "sudo nvidia-smi -i 0 -pl 250"
)
ONE_PROCESS_A_GPU: Final = Fix("Start as many processes as there are GPUs.", "torchrun --nproc-per-node=gpu train.py")
REBOOT_MACHINE: Final = Fix("Reboot the machine.", "sudo reboot")
RELOAD_UVM: Final = Fix(
    "Load the module anew; nothing may use the GPUs meanwhile.",
    "sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm",
)
ROOM_FOR_LIBRARIES: Final = Fix(
    "Leave room beside PyTorch's cache.",
    "import torch\n\ntorch.cuda.set_per_process_memory_fraction(0.9)",
)


def literal(text: str) -> Pattern:
    """A wording that is distinctive as it stands."""
    return Pattern(text, re.escape(text))


def names(*words: str) -> tuple[Pattern, ...]:
    """Names of an error in CUDA's or NCCL's interface, of which PyTorch prints one below the text."""
    return tuple(Pattern(word, rf"\b{word}\b") for word in words)


def cuda_error(text: str) -> Pattern:
    """The text of a CUDA error that could be prose, behind what says that it is an error."""
    return Pattern(text, _SAYS_ERROR + re.escape(text))
