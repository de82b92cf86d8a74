"""Errors of CUDA initialization: the PyTorch build, the process, the container, and the driver."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import NO_CONTEXT_YET, NOT_ABOUT_MEMORY, cuda_error, literal, name
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Start-up"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="not-compiled",
        section=SECTION,
        title="PyTorch build without CUDA",
        summary="The installed PyTorch is a CPU-only build.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("Torch not compiled with CUDA enabled"),
            literal("PyTorch was compiled without CUDA support"),
            literal("NVTX functions not installed. Are you sure you have a CUDA build?"),
            literal("libcudart functions unavailable. It looks like you have a broken build?"),
            literal("torch.cuda.Stream requires CUDA support"),
            Pattern("without ATen_cuda library", r"Cannot (?P<call>[^\n]{3,60}) without ATen_cuda library"),
        ),
        causes=(
            "PyPI's wheels for Windows and macOS contain no CUDA.",
            "The requirements of another package replaced the CUDA build.",
            "PyTorch was installed from the CPU index.",
        ),
        fixes=(
            Fix(
                "Install a build with CUDA; with a driver older than 580, write cu126 instead of cu130.",
                "pip install --force-reinstall torch torchvision --index-url https://download.pytorch.org/whl/cu130",
            ),
            Fix(
                "Check that this Python now has that build; None means a CPU build.",
                "python -c 'import torch; print(torch.version.cuda)'",
            ),
            Fix(
                "Without an NVIDIA GPU, use the device that exists; on a Mac it is mps.",
                'device = "cuda" if torch.cuda.is_available() else "cpu"',
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        see_more=(fixes.SHOW_VERSIONS,),
        sources=(sources.PYTORCH_INSTALL,),
        said_by="torch 1.13-2.13, Lightning 2.1-2.6",
    ),
    KnownError(
        id="no-torch",
        section=SECTION,
        title="PyTorch is not installed in this environment",
        summary="The Python that runs the program does not find the torch package.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(literal("No module named 'torch'"),),
        causes=(
            "Another Python is used than the one into which PyTorch was installed, such as sudo's or a notebook's.",
            "A package imports torch while it is built: pip builds in an isolated environment without torch.",
        ),
        fixes=(
            Fix("Check which Python runs, and whether it has torch.", "which python; python -m pip show torch"),
            Fix("Install PyTorch into this environment.", "python -m pip install torch"),
            Fix(
                "If the error occurs while pip builds a package, build it in this environment.",
                "pip install --no-build-isolation PACKAGE",
                first_for=("pip build",),
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(sources.PYTORCH_INSTALL,),
    ),
    KnownError(
        id="cuda-unavailable",
        section=SECTION,
        title="CUDA is not available",
        summary="The program requires CUDA, and PyTorch found no GPU, or the program chose the CPU.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("CUDA is not available", r"Error: [^\n]{0,60}?CUDA is not available\b"),
            Pattern("orch is not able to use GPU", r"(?:Error: |^)Torch is not able to use GPU"),
            Pattern("Invalid CUDA 'device=", r"Invalid CUDA 'device=(?P<device>[\w,:]{1,20})' requested"),
            Pattern("Invalid CUDA '--device ", r"Invalid CUDA '--device (?P<device>[\w,:]{1,20})' requested"),
            Pattern(
                "CUDA unavailable, invalid device",
                r"CUDA unavailable, invalid device (?P<device>[\w,:]{1,20}) requested",
            ),
            literal("GPU is required to quantize or run quantize model"),
            Pattern("CUDA is required but not available", r"CUDA is required but not available"),
            literal("Expected a cuda device, but got: cpu"),
            literal("Your device does not support the current version of Torch/CUDA"),
        ),
        causes=(
            "The installed PyTorch is a CPU-only build.",
            "The process has no GPU: CUDA_VISIBLE_DEVICES, the container, the scheduler, or no driver.",
            "The driver is older than the CUDA version of the build; a warning before this error reports that.",
        ),
        fixes=(
            Fix(
                "Check the build and what it finds; None means a CPU build.",
                "python -c 'import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())'",
            ),
            Fix("Check the driver and the variable.", 'nvidia-smi -L; echo "$CUDA_VISIBLE_DEVICES"'),
            Fix(
                "For a CPU build, install one with CUDA.",
                "pip install --force-reinstall torch torchvision --index-url https://download.pytorch.org/whl/cu130",
            ),
            Fix("Give the container access to its GPUs.", "docker run --rm --gpus all IMAGE nvidia-smi -L"),
        ),
        empty_cache=NO_CONTEXT_YET,
        see_more=(fixes.SHOW_VERSIONS,),
        sources=(sources.PYTORCH_INSTALL, sources.CUDA_NOTES),
        said_by="torch 1.13-2.13, vLLM 0.19, transformers 4.36-5.0, SGLang 0.4-0.5",
    ),
    KnownError(
        id="async-argument",
        section=SECTION,
        title="Argument async was renamed",
        summary="The program was written for a PyTorch before 0.4, in which non_blocking was called async.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "got an unexpected keyword argument 'async",
                r"(?:\w{1,40}\.)?(?P<function>cuda|to|copy_)\(\) got an unexpected keyword argument 'async_?'",
            ),
            Pattern(".cuda(async=", r"\.(?P<function>cuda)\(async=(?:True|False)\)"),
        ),
        causes=("The name async is a keyword since Python 3.7; PyTorch renamed the argument to non_blocking.",),
        fixes=(Fix("Rename the argument.", "batch = batch.cuda(non_blocking=True)"),),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.Tensor.cuda.html",),
    ),
    KnownError(
        id="no-gpus",
        section=SECTION,
        title="No CUDA GPUs are available",
        summary="The driver responds, but this process has access to no GPU.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("No CUDA GPUs are available"),
            literal("no CUDA-capable device is detected"),
            name("cudaErrorNoDevice"),
            name("CUDA_ERROR_NO_DEVICE"),
        ),
        causes=(
            "CUDA_VISIBLE_DEVICES is empty or -1, or names an index or UUID that does not exist.",
            "The container was started without GPUs, or the scheduler assigned none to the job.",
            "Every GPU is in MIG mode and has no instance.",
            "The GPU was lost; the kernel log then contains an Xid.",
        ),
        fixes=(
            Fix(
                "Check which GPUs the process may use, and try without the variable.",
                'echo "$CUDA_VISIBLE_DEVICES"; unset CUDA_VISIBLE_DEVICES',
            ),
            Fix("List the GPUs and the device files.", "nvidia-smi -L; ls -l /dev/nvidia*"),
            Fix("Give the container access to its GPUs.", "docker run --rm --gpus all IMAGE nvidia-smi -L"),
            Fix("In a Slurm job, request a GPU.", "srun --gpus=1 nvidia-smi -L"),
            Fix("With MIG, create instances, or select one by its UUID.", "sudo nvidia-smi mig -lgi; nvidia-smi -L"),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(sources.CUDA_NOTES, sources.CUDA_ERRORS),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, vLLM 0.4-0.19, Triton 2.0-3.6",
    ),
    KnownError(
        id="bad-ordinal",
        section=SECTION,
        title="Invalid GPU index",
        summary="The program requested a GPU whose index is not less than the number of visible GPUs.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("invalid device ordinal", r"(?<!uda failure ')(?<!uda failure 101 ')invalid device ordinal"),
            name("cudaErrorInvalidDevice"),
            name("CUDA_ERROR_INVALID_DEVICE"),
            Pattern("Invalid device id", r"Error: Invalid device id$"),
            literal("device >= 0 && device < num_gpus INTERNAL ASSERT FAILED"),
            Pattern(
                "ATen/cuda/CUDAContext.cpp", r"INTERNAL ASSERT FAILED at \"[^\"\n]{0,80}ATen/cuda/CUDAContext\.cpp"
            ),
        ),
        causes=(
            "More processes were started than there are GPUs.",
            "CUDA_VISIBLE_DEVICES hides some GPUs; the visible ones are numbered from 0.",
            "The global rank was used where the local rank is required.",
        ),
        fixes=(
            fixes.DEVICE_COUNT,
            Fix(
                "Use the local rank.",
                'import os\n\ntorch.cuda.set_device(int(os.environ["LOCAL_RANK"]))',
            ),
            fixes.ONE_PROCESS_PER_GPU,
            Fix("Make all GPUs visible.", "unset CUDA_VISIBLE_DEVICES"),
            Fix(
                "Set CUDA_VISIBLE_DEVICES before the program starts: after CUDA has counted the GPUs, another value"
                " contradicts the count.",
                "CUDA_VISIBLE_DEVICES=0 python train.py",
                first_for=("INTERNAL ASSERT",),
            ),
            Fix(
                "Under Slurm, JAX takes GPU N for task N of a host: start no more tasks than GPUs, and let each"
                " task see"
                " all of them.",
                "srun --gpus-per-node=4 --ntasks-per-node=4 --gpu-bind=none python train.py",
                first_for=("StreamExecutor for CUDA",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.CUDA_ERRORS, "https://docs.pytorch.org/docs/stable/elastic/run.html"),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, vLLM 0.4, Triton 2.0-3.6",
    ),
    KnownError(
        id="busy",
        section=SECTION,
        title="GPU busy or unavailable",
        summary="The GPU exists, but the driver did not let this process create a context on it.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("busy or unavailable", r"CUDA-capable device(?:\(s\) is/are|s are) busy or unavailable"),
            name("cudaErrorDevicesUnavailable"),
            name("cudaErrorDeviceUnavailable"),
            name("CUDA_ERROR_DEVICE_UNAVAILABLE"),
        ),
        causes=(
            "The compute mode allows one process and another one uses the GPU, or the mode prohibits all processes.",
            "The GPU is in MIG mode and has no compute instance.",
            "The GPU has failed and needs a reset.",
            "A virtual GPU has no license; `nvidia-smi -q` shows the state of the license.",
        ),
        fixes=(
            Fix("Show the compute mode and the processes on the GPU.", "nvidia-smi -q -d COMPUTE; nvidia-smi"),
            Fix("Allow several processes.", "sudo nvidia-smi -i 0 -c DEFAULT"),
            Fix("Or choose another GPU.", "CUDA_VISIBLE_DEVICES=1 python train.py"),
            Fix("With MIG, list the instances.", "sudo nvidia-smi mig -lgi; sudo nvidia-smi mig -lci"),
            Fix("On a virtual GPU, check the license.", "nvidia-smi -q | grep -i -A 2 license"),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(sources.CUDA_ERRORS,),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, vLLM 0.4, Triton 3.0-3.6",
    ),
    KnownError(
        id="fork",
        section=SECTION,
        title="CUDA after a fork",
        summary=(
            "A process that had used CUDA was forked, and the child used CUDA as well, which CUDA does not support."
        ),
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("Cannot re-initialize CUDA in forked subprocess"),
            literal("!in_bad_fork INTERNAL ASSERT FAILED"),
            literal("can't create new processes if CUDA is already initialized"),
            literal("CUDA initialized before forking"),
        ),
        causes=(
            "The dataset uses CUDA in the DataLoader's workers.",
            "The parent used CUDA before it started its processes, which Linux forks by default before Python 3.14.",
            "A server loads the model before it forks its workers.",
        ),
        fixes=(
            Fix("Keep datasets and collate functions on the CPU."),
            Fix(
                "Spawn processes instead of forking them.",
                """\
import torch.multiprocessing

if __name__ == "__main__":
    torch.multiprocessing.set_start_method("spawn")
    main()""",
            ),
            Fix(
                "Or set the start method for the DataLoader only.",
                'loader = DataLoader(dataset, num_workers=4, multiprocessing_context="spawn")',
            ),
            Fix(
                "Check for a GPU without initializing CUDA.",
                "PYTORCH_NVML_BASED_CUDA_CHECK=1 python train.py",
            ),
            Fix(
                "Restart the notebook's kernel, and call nothing of torch.cuda before the trainer starts.",
                'trainer = Trainer(devices=2, strategy="ddp_notebook")',
                first_for=("Lightning can't",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.MULTIPROCESSING_NOTES, sources.CUDA_NOTES),
        said_by="torch 1.13-2.13, vLLM 0.6-0.19, SGLang 0.5, accelerate 0.19-1.14",
    ),
    KnownError(
        id="lazy-init",
        section=SECTION,
        title="Deferred CUDA call failed",
        summary=(
            "A call such as manual_seed was deferred until CUDA was initialized, and then failed; the text after "
            "it is the cause."
        ),
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "CUDA call failed lazily at initialization with error",
                r"CUDA call failed lazily at initialization with error(?:: (?P<reason>[^\n]{1,200}))?",
            ),
        ),
        causes=(
            "A GPU index does not exist.",
            "The driver is too old, or no GPU is usable.",
            "An earlier error killed the CUDA context.",
        ),
        fixes=(
            Fix("Read the text after `with error`: it is the cause."),
            fixes.DEVICE_COUNT,
        ),
        empty_cache=NO_CONTEXT_YET,
        see_more=(fixes.LAUNCH_BLOCKING,),
        sources=("https://github.com/pytorch/pytorch/blob/main/torch/cuda/__init__.py",),
        said_by="torch 1.13-2.13",
        is_echo=True,
    ),
    KnownError(
        id="init-error-2",
        section=SECTION,
        title="CUDA initialization failed: error 2",
        summary="cuInit failed for lack of memory, in most cases that of the host: it comes before memory of a GPU.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("Error 2: out of memory", r"might have already set an error\? Error 2: out of memory"),
            Pattern("CUDA_ERROR_OUT_OF_MEMORY", r"\bcuInit(?: results in|:) CUDA_ERROR_OUT_OF_MEMORY\b"),
        ),
        causes=(
            "In WSL, its version, the Windows driver and the number of GPUs do not fit together.",
            "The virtual memory of the process is limited: by ulimit -v, the container, or the scheduler.",
            "The host, or the virtual machine, has too little memory for its GPUs.",
        ),
        fixes=(
            Fix(
                "In WSL, update it in a terminal of Windows, upgrade NVIDIA's driver for Windows, and start WSL again.",
                "wsl --update\nwsl --shutdown",
            ),
            Fix(
                "Try a single GPU; if that works, give WSL more memory in .wslconfig.",
                "CUDA_VISIBLE_DEVICES=0 python -c 'import torch; torch.zeros(1).cuda()'",
            ),
            Fix("Without WSL, show the limit of virtual memory, and remove it.", "ulimit -v; ulimit -v unlimited"),
            Fix("Show the free memory of the host.", "free -h"),
            fixes.REBOOT,
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(sources.CUDA_ERRORS, "https://github.com/pytorch/pytorch/issues/150048"),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="init-error-3",
        section=SECTION,
        title="CUDA initialization failed",
        summary="The driver could not be initialized in this process.",
        context=ContextState.UNKNOWN,
        patterns=(
            cuda_error("initialization error"),
            name("cudaErrorInitializationError"),
            name("CUDA_ERROR_NOT_INITIALIZED"),
            Pattern('initialize type "_CudaDeviceProperties', r"cannot initialize type \"_CudaDeviceProperties\""),
        ),
        causes=(
            "A library used CUDA in a process that was forked after CUDA was initialized.",
            "The device files cannot be opened: missing permissions, or a container without /dev/nvidia-uvm.",
            "The container or a sandbox blocks a system call.",
            "A first attempt failed earlier in the same process or notebook: that error says why.",
        ),
        fixes=(
            Fix("Spawn processes instead of forking them.", 'torch.multiprocessing.set_start_method("spawn")'),
            Fix("Check whether the device files exist and can be read and written.", "ls -l /dev/nvidia*; id"),
            Fix("In a notebook, restart the kernel, and read the first error.", first_for=("already defined",)),
            Fix("Check whether another program can use the GPU.", "python -c 'import torch; torch.zeros(1).cuda()'"),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(sources.CUDA_ERRORS, sources.MULTIPROCESSING_NOTES),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, vLLM 0.4, Triton 2.0-3.6",
    ),
)
