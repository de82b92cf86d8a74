"""Errors of the start: PyTorch and the process around it keep CUDA from being used."""

from typing import Final

from gpumon.diagnosis.catalogue.shared import (
    CUDA_ERRORS,
    CUDA_NOTES,
    LAUNCH_BLOCKING,
    MULTIPROCESSING_NOTES,
    NO_CONTEXT_YET,
    NO_MEMORY_MATTER,
    ONE_PROCESS_A_GPU,
    PYTORCH_INSTALL,
    VERSIONS,
    cuda_error,
    literal,
    names,
)
from gpumon.diagnosis.known import Context, Fix, KnownError, Pattern

_SECTION: Final = "Start-up"

_CPU_BUILD: Final = KnownError(
    id="not-compiled",
    section=_SECTION,
    title="PyTorch without CUDA",
    summary="The installed PyTorch is a build for the CPU alone.",
    context=Context.NOT_APPLICABLE,
    patterns=(literal("Torch not compiled with CUDA enabled"),),
    causes=(
        "PyPI's wheels for Windows and macOS hold no CUDA.",
        "Another package's requirements replaced the CUDA build.",
        "The CPU index was chosen at installation.",
    ),
    fixes=(
        Fix(
            "See what is installed; None stands for a CPU build.", "python -c 'import torch; print(torch.version.cuda)'"
        ),
        Fix(
            "Install a build with CUDA.",
            "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu130",
        ),
        Fix("Write the program so that it runs on either.", 'device = "cuda" if torch.cuda.is_available() else "cpu"'),
    ),
    empty_cache=NO_CONTEXT_YET,
    see_more=(VERSIONS,),
    sources=(PYTORCH_INSTALL,),
)

_NO_GPUS: Final = KnownError(
    id="no-gpus",
    section=_SECTION,
    title="No CUDA GPUs are available",
    summary="The driver answers, but this process is allowed to see no GPU.",
    context=Context.NOT_APPLICABLE,
    patterns=(
        literal("No CUDA GPUs are available"),
        literal("no CUDA-capable device is detected"),
        *names("cudaErrorNoDevice", "CUDA_ERROR_NO_DEVICE"),
    ),
    causes=(
        "CUDA_VISIBLE_DEVICES is empty, -1, or names an index or UUID that does not exist.",
        "The container was started without GPUs, or the scheduler gave the job none.",
        "Every GPU is in MIG mode and has no instance.",
        "The GPU was lost, which the kernel log tells.",
    ),
    fixes=(
        Fix(
            "See what the process may use, and try without.", 'echo "$CUDA_VISIBLE_DEVICES"; unset CUDA_VISIBLE_DEVICES'
        ),
        Fix("See which GPUs and device files there are.", "nvidia-smi -L; ls -l /dev/nvidia*"),
        Fix("Give the container its GPUs.", "docker run --rm --gpus all IMAGE nvidia-smi -L"),
        Fix("In a Slurm job, ask for a GPU.", "srun --gpus=1 nvidia-smi -L"),
        Fix("With MIG, create instances, or name one by its UUID.", "sudo nvidia-smi mig -lgi; nvidia-smi -L"),
    ),
    empty_cache=NO_CONTEXT_YET,
    sources=(CUDA_NOTES, CUDA_ERRORS),
)

_ORDINAL: Final = KnownError(
    id="bad-ordinal",
    section=_SECTION,
    title="There is no GPU of this number",
    summary="The program asked for a GPU whose number is not below the count that it sees.",
    context=Context.ALIVE,
    patterns=(literal("invalid device ordinal"), *names("cudaErrorInvalidDevice", "CUDA_ERROR_INVALID_DEVICE")),
    causes=(
        "More processes were started than there are GPUs.",
        "CUDA_VISIBLE_DEVICES hides some; those that are left count from 0.",
        "The number of the rank over all machines was used where that within the machine is meant.",
    ),
    fixes=(
        Fix("See how many the program sees.", "python -c 'import torch; print(torch.cuda.device_count())'"),
        Fix(
            "Use the rank within the machine.",
            'import os\n\ntorch.cuda.set_device(int(os.environ["LOCAL_RANK"]))',
        ),
        ONE_PROCESS_A_GPU,
        Fix("Show all of them.", "unset CUDA_VISIBLE_DEVICES"),
    ),
    empty_cache=NO_MEMORY_MATTER,
    sources=(CUDA_ERRORS, "https://docs.pytorch.org/docs/stable/elastic/run.html"),
)

_BUSY: Final = KnownError(
    id="busy",
    section=_SECTION,
    title="GPU busy or unavailable",
    summary="The GPU is there, but the driver did not let this process make a context on it.",
    context=Context.ALIVE,
    patterns=(
        Pattern("busy or unavailable", r"CUDA-capable device(?:\(s\) is/are|s are) busy or unavailable"),
        *names("cudaErrorDevicesUnavailable", "cudaErrorDeviceUnavailable", "CUDA_ERROR_DEVICE_UNAVAILABLE"),
    ),
    causes=(
        "The compute mode allows one process, and another one is on the GPU; or it prohibits all.",
        "The GPU is in MIG mode and has no compute instance.",
        "The GPU has failed and needs a reset.",
    ),
    fixes=(
        Fix("See the compute mode and who is there.", "nvidia-smi -q -d COMPUTE; nvidia-smi"),
        Fix("Allow several processes.", "sudo nvidia-smi -i 0 -c DEFAULT"),
        Fix("Or choose another GPU.", "CUDA_VISIBLE_DEVICES=1 python train.py"),
        Fix("With MIG, see which instances there are.", "sudo nvidia-smi mig -lgi; sudo nvidia-smi mig -lci"),
    ),
    empty_cache="Does nothing here: this process holds no memory of that GPU yet.",
    sources=(CUDA_ERRORS,),
)

_FORK: Final = KnownError(
    id="fork",
    section=_SECTION,
    title="CUDA after a fork",
    summary="A process that had used CUDA was forked, and its child used CUDA too, which CUDA does not allow.",
    context=Context.NOT_APPLICABLE,
    patterns=(literal("Cannot re-initialize CUDA in forked subprocess"),),
    causes=(
        "The dataset touches CUDA in the DataLoader's workers.",
        "The parent used CUDA before it started its processes, which Linux forks by default before Python 3.14.",
        "A server loads the model before it forks its workers.",
    ),
    fixes=(
        Fix("Keep datasets and collate functions on the CPU."),
        Fix(
            "Start processes anew rather than fork them.",
            """\
import torch.multiprocessing

if __name__ == "__main__":
    torch.multiprocessing.set_start_method("spawn")
    main()""",
        ),
        Fix(
            "Or tell the DataLoader alone.",
            'loader = DataLoader(dataset, num_workers=4, multiprocessing_context="spawn")',
        ),
        Fix(
            "Ask whether there is a GPU without starting CUDA.",
            "PYTORCH_NVML_BASED_CUDA_CHECK=1 python train.py",
        ),
    ),
    empty_cache="Does nothing here: the child has no context of its own, and the parent's is not affected.",
    sources=(MULTIPROCESSING_NOTES, CUDA_NOTES),
)

_DEFERRED: Final = KnownError(
    id="lazy-init",
    section=_SECTION,
    title="A call that waited for CUDA has failed",
    summary="A call such as manual_seed was kept until CUDA started, and failed then; the text after it is the cause.",
    context=Context.NOT_APPLICABLE,
    patterns=(
        Pattern(
            "CUDA call failed lazily at initialization with error",
            r"CUDA call failed lazily at initialization with error(?:: (?P<reason>[^\n]{1,200}))?",
        ),
    ),
    causes=(
        "The number of a GPU does not exist.",
        "The driver is too old, or no GPU can be used.",
        "An error before has left the context dead.",
    ),
    fixes=(
        Fix("Read what stands behind `with error`: it is the cause."),
        Fix("See how many GPUs the program sees.", "python -c 'import torch; print(torch.cuda.device_count())'"),
    ),
    empty_cache=NO_CONTEXT_YET,
    see_more=(LAUNCH_BLOCKING,),
    sources=("https://github.com/pytorch/pytorch/blob/main/torch/cuda/__init__.py",),
    is_echo=True,
)

_INITIALIZATION: Final = KnownError(
    id="init-error-3",
    section=_SECTION,
    title="CUDA could not start",
    summary="The driver could not be started in this process.",
    context=Context.UNKNOWN,
    patterns=(
        cuda_error("initialization error"),
        cuda_error("OS call failed"),
        *names("cudaErrorInitializationError", "CUDA_ERROR_NOT_INITIALIZED", "cudaErrorOperatingSystem"),
    ),
    causes=(
        "A library used CUDA in a process that was forked after CUDA had started.",
        "The device files cannot be opened: permissions, or a container without /dev/nvidia-uvm.",
        "The container or a sandbox forbids a system call.",
    ),
    fixes=(
        Fix("Start processes anew rather than fork them.", 'torch.multiprocessing.set_start_method("spawn")'),
        Fix("See whether the device files are there and may be read and written.", "ls -l /dev/nvidia*; id"),
        Fix("See whether another program can use the GPU.", "python -c 'import torch; torch.zeros(1).cuda()'"),
    ),
    empty_cache=NO_CONTEXT_YET,
    sources=(CUDA_ERRORS, MULTIPROCESSING_NOTES),
)

ERRORS: Final = (_CPU_BUILD, _NO_GPUS, _ORDINAL, _BUSY, _FORK, _DEFERRED, _INITIALIZATION)
