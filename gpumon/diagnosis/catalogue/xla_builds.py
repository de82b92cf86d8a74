"""Errors of builds of JAX and TensorFlow that do not fit each other, the CPU or the GPU."""

from typing import Final

from gpumon.diagnosis.catalogue.jax_tensorflow import SECTION
from gpumon.diagnosis.catalogue.wording import NO_CONTEXT_YET, NOT_ABOUT_MEMORY, literal
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
                r"(?<!'rocm': )(?:module 'jaxlib\.?[\w.]{0,30}'|module 'jax[\w.]{0,30}') has no attribute"
                r" '(?P<name>generate_pjrt_gpu_plugin_options|GpuAllocatorConfig|\w{0,30}pjrt\w{0,40}"
                r"|_version_as_tuple)'",
            ),
            Pattern(
                "Mismatched PJRT plugin PJRT API version",
                r"Mismatched PJRT plugin PJRT API version \((?P<plugin>[\d.]{1,8})\)",
            ),
            Pattern("' from 'jax._src", r"cannot import name '(?P<name>\w{1,60})' from 'jax\._src[\w.]{0,60}'"),
            Pattern(
                "register_custom_call_target(): ",
                r"register_custom_call_target\(\): incompatible function"
                r" arguments",
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
                r"|DEADLINE_EXCEEDED): (?!Barrier|Deadline Exceeded RPC|Getting local|Autotuning failed|No reference"
                r" output|[^\n]{0,200}?(?:PjRT_"
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
                r"F external/(?:local_)?xla/[\w./-]{1,120}:\d{1,6}\] Check failed:"
                r" (?!options\.is_auto)(?P<reason>[^\n]{1,120})",
            ),
            Pattern(
                "JaxRuntimeError: ",
                r"JaxRuntimeError: (?P<status>INTERNAL|UNKNOWN|FAILED_PRECONDITION|INVALID_ARGUMENT|ABORTED"
                r"|UNIMPLEMENTED"
                r"|DEADLINE_EXCEEDED): (?!Barrier|Deadline Exceeded RPC|Getting local|Autotuning failed|No reference"
                r" output|[^\n]{0,200}?(?:PjRT_"
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
            Fix(
                "Give each process its GPU by the environment, before JAX starts.",
                "CUDA_VISIBLE_DEVICES=0 python train.py",
                first_for=("local_device_ordinal",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.jax.dev/en/latest/gpu_memory_allocation.html",),
        said_by="JAX 0.4-0.8",
        is_echo=True,
    ),
    KnownError(
        id="xla-autotuning",
        section=SECTION,
        title="XLA: no kernel passed its autotuning",
        summary="XLA tries several kernels for an operation before it chooses one, and none of them worked.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern("Autotuning failed for HLO", r"Autotuning failed for HLO(?:: (?P<operation>[^\n]{1,120}))?"),
            Pattern("INTERNAL: No reference output found", r"INTERNAL: No reference output found"),
            Pattern("options.is_autotuning_compilation", r"Check failed: options\.is_autotuning_compilation"),
        ),
        causes=(
            "JAX, its CUDA libraries or the driver are older than the GPU needs.",
            "The GPU has no memory left for the attempts.",
        ),
        fixes=(
            Fix(
                "Upgrade JAX together with its libraries, and the driver; use cuda13 if that is installed.",
                'pip install --upgrade "jax[cuda12]"',
            ),
            Fix("Choose kernels without trying them.", "XLA_FLAGS=--xla_gpu_autotune_level=0 python train.py"),
            Fix("Leave memory for the attempts.", "XLA_PYTHON_CLIENT_PREALLOCATE=false python train.py"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/jax-ml/jax/issues/33715", "https://github.com/jax-ml/jax/issues/20024"),
        said_by="JAX 0.4-0.9",
    ),
    KnownError(
        id="tpu-unavailable",
        section=SECTION,
        title="TPU cannot be used",
        summary="JAX, TensorFlow or PyTorch/XLA could not find or start the TPU.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "in use by process with pid",
                r"The TPU is already in use by process with pid"
                r" (?P<process>\d{1,9})",
            ),
            literal("libtpu.so already in use by another process"),
            Pattern("initialize backend 'tpu'", r"Unable to initialize backend 'tpu': (?P<reason>[^\n]{1,160})"),
            Pattern("A Google TPU may be present", r"A Google TPU may be present on this \w{4,10}"),
            Pattern("TPU initialization failed:", r"TPU initialization failed: (?P<reason>[^\n]{1,160})"),
            Pattern(
                "Failed to initialize TPU system",
                r"Failed to initialize TPU system with error: (?P<reason>[^\n]{1,160})",
            ),
            Pattern("Please provide a TPU Name", r"Please provide a TPU Name to connect to"),
            Pattern("'ConfigureDistributedTPU'", r"support Op 'ConfigureDistributedTPU'"),
        ),
        causes=(
            "Another process has the TPU: only one process at a time can use it, often that of a notebook.",
            "The installed package has no support for TPUs, or its libtpu has another version.",
            "The host has no TPU, or variables of the environment describe another layout of workers.",
        ),
        fixes=(
            Fix(
                "Find the process that has the TPU, and end it.",
                "sudo lsof -w /dev/accel* /dev/vfio/*",
                first_for=("in use",),
            ),
            Fix("Install JAX with its library for TPUs.", 'pip install --upgrade "jax[tpu]"'),
            Fix(
                "Install TensorFlow for TPUs instead of the usual package, and name a local TPU `local`.",
                "pip uninstall -y tensorflow && pip install tensorflow-tpu -f"
                " https://storage.googleapis.com/libtpu-tf-releases/index.html",
                first_for=("TPU Name", "ConfigureDistributedTPU"),
            ),
            Fix(
                "On Kaggle and on a single host, remove the addresses of other workers.",
                "unset TPU_PROCESS_ADDRESSES CLOUD_TPU_TASK_ID",
                first_for=("worker_addresses",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_JAX_INSTALL, "https://github.com/huggingface/transformers/issues/28204"),
        said_by="JAX 0.4-0.9, TensorFlow 2.13-2.19, torch-xla 2",
    ),
)
