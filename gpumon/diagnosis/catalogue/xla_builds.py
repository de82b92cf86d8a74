"""Errors of builds of JAX and TensorFlow that do not fit each other, the CPU or the GPU."""

from typing import Final

from gpumon.diagnosis.catalogue.jax_tensorflow import SECTION
from gpumon.diagnosis.catalogue.wording import NO_CONTEXT_YET, NOT_ABOUT_MEMORY
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_JAX_INSTALL: Final = "https://docs.jax.dev/en/latest/installation.html"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="jax-versions",
        section=SECTION,
        title="Packages of JAX have different versions",
        summary="The packages jax, jaxlib and the CUDA plugin do not belong together.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "jaxlib is version ",
                r"jaxlib is version (?P<jaxlib>[\w.+]{1,20}), but this version of jax requires version >="
                r" ?(?P<required>[\w.]{1,20})",
            ),
            Pattern(
                "This version of jax requires jaxlib",
                r"This version of jax requires jaxlib version >= ?(?P<required>[\w.]{1,20})",
            ),
            Pattern(
                "is newer than and incompatible with jax version",
                r"jaxlib version (?P<jaxlib>[\w.+]{1,20}) is newer than and incompatible with jax version"
                r" (?P<jax>[\w.+]{1,20})",
            ),
            Pattern(
                "is installed, but it is not compatible with the installed jaxlib",
                r"JAX plugin (?P<plugin>\w{1,40}) version (?P<version>[\w.+]{1,20}) is installed, but it is not"
                r" compatible"
                r" with the installed jaxlib version (?P<jaxlib>[\w.+]{1,20})",
            ),
            Pattern(
                "has no attribute '",
                r"(?:module 'jaxlib\.?[\w.]{0,30}'|module 'jax[\w.]{0,30}') has no attribute"
                r" '(?P<name>generate_pjrt_gpu_plugin_options|GpuAllocatorConfig|\w{0,30}pjrt\w{0,40}"
                r"|_version_as_tuple)'",
            ),
        ),
        causes=("One of the packages was upgraded alone, or another package fixes an old version of it.",),
        fixes=(
            Fix(
                "Install all of them together.",
                "pip uninstall -y jax jaxlib jax-cuda12-plugin jax-cuda12-pjrt && pip install --upgrade 'jax[cuda12]'",
            ),
            Fix("Show what is installed.", "pip list | grep -i jax"),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(_JAX_INSTALL, "https://github.com/jax-ml/jax/blob/main/jax/_src/lib/__init__.py"),
        said_by="JAX 0.4-0.8",
    ),
    KnownError(
        id="tf-architecture",
        section=SECTION,
        title="TensorFlow's build does not know this GPU",
        summary="This TensorFlow has no code for the GPU; it is compiled by the driver at the start, or fails.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "CUDA kernel binaries compatible with compute capability",
                r"TensorFlow was not built with CUDA kernel binaries compatible with compute capability"
                r" (?P<capability>\d{1,2}\.\d)",
            ),
            Pattern(
                "tf_gpu_runtime_wrappers.cc",
                r"tf_gpu_runtime_wrappers\.cc:\d{1,5}\] '[^\n]{1,80}' failed with"
                r" '(?P<status>CUDA_ERROR_INVALID_(?:PTX|HANDLE|IMAGE))'",
            ),
            Pattern(
                "cuLaunchKernel(function, gridX",
                r"'cuLaunchKernel\(function, gridX[^\n]{1,160}' failed with '(?P<status>CUDA_ERROR_INVALID_\w{1,12})'",
            ),
        ),
        causes=("The GPU is newer than the release, as GPUs of capability 12.0 (RTX 50) for TensorFlow up to 2.20.",),
        fixes=(
            Fix(
                "Upgrade TensorFlow, and check whether the warning is gone.",
                "pip install --upgrade 'tensorflow[and-cuda]'",
            ),
            Fix(
                "With Keras 3, run the same model on PyTorch or JAX, which have code for new GPUs.",
                "KERAS_BACKEND=torch python train.py",
            ),
            Fix(
                "Or use NVIDIA's last image of TensorFlow, which is built for these GPUs.",
                "docker run --rm -it --gpus all nvcr.io/nvidia/tensorflow:25.02-tf2-py3",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/tensorflow/tensorflow/issues/89272",
            "https://github.com/tensorflow/tensorflow/issues/101746",
            "https://keras.io/getting_started/#configuring-your-backend",
        ),
        said_by="TensorFlow 2.16-2.20",
    ),
    KnownError(
        id="jax-cpu-instructions",
        section=SECTION,
        title="JAX was built for another CPU",
        summary="The package of JAX uses instructions that this CPU does not have, or is for another kind of CPU.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("jaxlib was built using", r"jaxlib was built using (?P<instructions>[\w ]{1,12}) instructions"),
        ),
        causes=(
            "On a Mac with an Apple CPU, Python was installed for Intel and runs in emulation.",
            "A virtual machine hides the instructions of its CPU.",
        ),
        fixes=(
            Fix(
                "Check for which CPU Python was built: arm64 on a new Mac.",
                "python -c 'import platform; print(platform.machine())'",
            ),
            Fix("In a virtual machine, pass the CPU through: `host` as the type of CPU."),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(_JAX_INSTALL,),
        said_by="JAX 0.4",
    ),
    KnownError(
        id="xla-runtime",
        section=SECTION,
        title="XLA: a computation failed",
        summary="A compiled computation of JAX or TensorFlow failed on the GPU; the text after the status is the"
        " reason.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "XlaRuntimeError: ",
                r"XlaRuntimeError: (?P<status>INTERNAL|UNKNOWN|FAILED_PRECONDITION|INVALID_ARGUMENT|ABORTED"
                r"|UNIMPLEMENTED"
                r"|DEADLINE_EXCEEDED): (?!Barrier|Deadline Exceeded RPC|Getting local|[^\n]{0,200}?(?:PjRT_"
                r"|CUDA_ERROR|CUDNN_|DNN|cuSolver internal|dnn !=|ptxas|ut of"
                r" memory|libdevice))"
                r"(?P<reason>[^\n]{1,160})",
            ),
            Pattern(
                "Execution of replica ",
                r"Execution of replica \d{1,5} failed: (?P<status>INTERNAL|UNKNOWN): (?![^\n]{0,200}?CUDA_ERROR)"
                r"(?P<reason>[^\n]{1,160})",
            ),
            Pattern(
                "] Check failed: ",
                r"F external/(?:local_)?xla/[\w./-]{1,120}:\d{1,6}\] Check failed: (?P<reason>[^\n]{1,120})",
            ),
            Pattern(
                "JaxRuntimeError: ",
                r"JaxRuntimeError: (?P<status>INTERNAL|UNKNOWN|FAILED_PRECONDITION|INVALID_ARGUMENT|ABORTED"
                r"|UNIMPLEMENTED"
                r"|DEADLINE_EXCEEDED): (?!Barrier|Deadline Exceeded RPC|Getting local|[^\n]{0,200}?(?:PjRT_"
                r"|CUDA_ERROR|CUDNN_|DNN|cuSolver internal|dnn !=|ptxas|ut of"
                r" memory|libdevice))"
                r"(?P<reason>[^\n]{1,160})",
            ),
        ),
        causes=(
            "A CUDA library or a kernel failed: the reason and the lines before name it.",
            "Another process of the job failed first, or the GPU has no memory left for a library.",
        ),
        fixes=(
            Fix(
                "Read the lines before the traceback, with all messages of XLA.",
                "TF_CPP_MIN_LOG_LEVEL=0 python train.py",
            ),
            Fix("Leave memory for libraries.", "XLA_PYTHON_CLIENT_MEM_FRACTION=.7 python train.py"),
            Fix("Upgrade JAX together with its libraries.", "pip install --upgrade 'jax[cuda12]'"),
            Fix("Find the operation: run without compilation.", "JAX_DISABLE_JIT=1 python train.py"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.jax.dev/en/latest/gpu_memory_allocation.html",),
        said_by="JAX 0.4-0.8",
        is_echo=True,
    ),
)
