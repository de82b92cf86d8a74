"""Fixes that several entries share."""

from typing import Final

from gpumon.diagnosis.known import Fix

LAUNCH_BLOCKING: Final = Fix(
    "Run again with synchronous launches, so that the traceback points at the operation that failed.",
    "CUDA_LAUNCH_BLOCKING=1 python train.py",
)
CUDA_LOG: Final = Fix(
    "Make the driver print why it refused the call; this needs a driver for CUDA 12.9 or later.",
    "CUDA_LOG_FILE=stderr python train.py",
)
CPP_STACKTRACES: Final = Fix(
    "Show the C++ frames below the Python ones.",
    "TORCH_SHOW_CPP_STACKTRACES=1 python train.py",
)
SANITIZER: Final = Fix(
    "Let compute-sanitizer name the kernel and the address; without PyTorch's cache it sees the end of every block.",
    "PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck python train.py",
)
KERNEL_LOG: Final = Fix("Check the kernel log from that time for an Xid.", "sudo dmesg -T | grep -i xid")
MEMORY_SNAPSHOT: Final = Fix(
    "Record every allocation and save a snapshot when memory runs out; open it at docs.pytorch.org/memory_viz.",
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
    "Print what the allocator holds at the point where memory runs short.",
    "import torch\n\nprint(torch.cuda.memory_summary())",
)
SHOW_VERSIONS: Final = Fix(
    "Show the versions of PyTorch, CUDA, the driver and the GPU.",
    "python -m torch.utils.collect_env",
)

DRIVER_CUDA_VERSION: Final = Fix(
    "Check which CUDA version the driver supports.", "nvidia-smi | grep -o -E 'CUDA (UMD )?Version: [0-9.]+'"
)
RESTART_PROCESS: Final = Fix("Restart the process or the notebook's kernel: a dead CUDA context cannot be recovered.")
LIST_PROCESSES: Final = Fix(
    "List the processes that hold GPU memory, then end one of them or choose another GPU.",
    "nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv",
)
FIRST_RANK: Final = Fix("Find the rank that failed first: the earliest error in the logs of all ranks is the cause.")
BUNDLED_LIBRARIES: Final = Fix(
    "If another version is loaded first, make PyTorch load its bundled CUDA libraries instead of the system's.",
    "unset LD_LIBRARY_PATH",
)
RESET_GPU: Final = Fix(
    "End every process on the GPU and reset it; if NVSwitch connects the GPUs, reset all of them, without -i.",
    "sudo nvidia-smi --gpu-reset -i 0",
)

LINK_STATE: Final = Fix(
    "Show the state of the links and their error counters.", "nvidia-smi nvlink -s; nvidia-smi nvlink -e"
)
LOWER_POWER: Final = Fix("Lower the power limit, to test whether power is the cause.", "sudo nvidia-smi -i 0 -pl 250")
ONE_PROCESS_PER_GPU: Final = Fix("Start one process per GPU.", "torchrun --nproc-per-node=gpu train.py")
REBOOT: Final = Fix("Reboot the host.", "sudo reboot")
RELOAD_UVM: Final = Fix(
    "Reload the nvidia_uvm module while no process uses the GPUs.",
    "sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm",
)
MEMORY_FOR_LIBRARIES: Final = Fix(
    "Leave memory outside PyTorch's cache for libraries.",
    "import torch\n\ntorch.cuda.set_per_process_memory_fraction(0.9)",
)
MEMORY_ERRORS: Final = Fix(
    "Check the ECC error counters and whether a row remapping is pending.",
    "nvidia-smi -q -d ECC,ROW_REMAPPER",
)
DEVICE_COUNT: Final = Fix(
    "Print how many GPUs the program sees.", "python -c 'import torch; print(torch.cuda.device_count())'"
)
OTHER_ATTENTION: Final = Fix(
    "The attention kernel of this package is not for this GPU: use PyTorch's attention, or another version of it.",
    'model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="sdpa")',
    first_for=("flash_fwd_launch_template",),
    hidden_otherwise=True,
)
