"""Errors of JAX and TensorFlow, which share XLA and its messages, and of CuPy and Numba."""

from dataclasses import replace
from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import NO_CONTEXT_YET, NOT_ABOUT_MEMORY, literal, name
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "JAX, TensorFlow, CuPy and Numba"

_JAX_INSTALL: Final = "https://docs.jax.dev/en/latest/installation.html"
_JAX_MEMORY: Final = "https://docs.jax.dev/en/latest/gpu_memory_allocation.html"
_TF_INSTALL: Final = "https://www.tensorflow.org/install/pip"

_NO_PREALLOCATION: Final = Fix(
    "If another program shares the GPU, let JAX allocate as needed instead of most of it at the start.",
    "XLA_PYTHON_CLIENT_PREALLOCATE=false python train.py",
)
_UNSET_PATH: Final = Fix(
    "If LD_LIBRARY_PATH names other CUDA libraries, use those of the pip packages.", "unset LD_LIBRARY_PATH"
)

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="xla-oom",
        section=SECTION,
        title="JAX or TensorFlow: out of memory",
        summary="An allocation of JAX or TensorFlow did not fit into the GPU's memory.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "RESOURCE_EXHAUSTED",
                r"RESOURCE_EXHAUSTED: (?:[^\n]{0,60}?[Oo]ut of memory|Failed to allocate request for)"
                r"(?:[^\n]{0,30}?(?P<requested>\d{3,20}|[\d.]{1,12}[KMGT]iB))?",
            ),
            Pattern("Error: RESOURCE_EXHAUSTED", r"XlaRuntimeError: RESOURCE_EXHAUSTED(?:: ?$|$|: Allocation \(size=)"),
            Pattern(
                "Resource exhausted: ", r"Resource exhausted: (?:Out of memory|Failed to allocate|OOM when allocating)"
            ),
            Pattern(
                "OOM when allocating tensor with shape",
                r"OOM when allocating tensor with shape ?(?P<shape>\[[\d,]{0,60}\])",
            ),
            Pattern(
                "Out of memory while trying to allocate",
                r"Out of memory while trying to allocate (?P<bytes>[\d.]{1,20}(?:[KMGT]iB)?)",
            ),
            Pattern(
                "ran out of memory trying to allocate",
                r"Allocator \((?P<allocator>\w{1,30})\) ran out of memory trying to allocate",
            ),
            Pattern("failed to allocate", r"failed to allocate [\d.]{1,12}[KMGT]i?B \(\d{1,20} bytes\) from device:"),
        ),
        causes=(
            "The arrays that live at once do not fit; XLA's report lists the largest buffers.",
            "Another process on the same GPU, such as a second notebook, took most of the memory at its start.",
        ),
        fixes=(
            Fix("Use a smaller batch, bfloat16, or `jax.checkpoint` for the large layers."),
            Fix("End other processes on the GPU, such as an idle notebook kernel.", "nvidia-smi"),
            _NO_PREALLOCATION,
            Fix("Or give JAX a larger share of the GPU.", "XLA_PYTHON_CLIENT_MEM_FRACTION=.95 python train.py"),
            Fix(
                "With TensorFlow, let the memory grow as needed.",
                "TF_FORCE_GPU_ALLOW_GROWTH=true python train.py",
            ),
            Fix("Donate the old state to the step function.", "step = jax.jit(step, donate_argnums=0)"),
        ),
        empty_cache="No effect: this is PyTorch's cache; JAX and TensorFlow have their own.",
        sources=(_JAX_MEMORY, "https://www.tensorflow.org/guide/gpu"),
    ),
    KnownError(
        id="xla-version",
        section=SECTION,
        title="JAX or TensorFlow: a CUDA library does not work",
        summary="A CUDA library is older than the one for which JAX or TensorFlow was built, or could not start.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Loaded runtime CuDNN library",
                r"Loaded runtime CuDNN library: (?P<loaded>[\d.]{1,12})(?: \(compatibility version \d{1,6}\))?"
                r" but source was compiled with:? (?P<required>[\d.]{1,12})",
            ),
            Pattern(
                "was built against",
                r"(?P<library>cu\w{2,12}|CUDA) version (?P<loaded>[\d.]{1,12}) found[^\n]{0,60}?was built against",
            ),
            Pattern(" installation found", r"Outdated (?P<library>cu[A-Za-z]{2,12}) installation found"),
            literal("DNN library is not found"),
            Pattern("Could not create cudnn handle", r"Could not create cudnn handle: (?P<status>\w{4,50})"),
            Pattern("launch failed", r"\bBlas (?P<routine>x?GEM[MV]|SGEMM|GEMMBatched|xGEMMBatched) launch failed"),
            Pattern("RET_CHECK failure ", r"RET_CHECK failure [^\n]{1,200}? dnn != nullptr"),
            Pattern("cuSolver internal error", r"INTERNAL: cuSolver internal error"),
            Pattern("failed to create cublas handle", r"failed to create cublas handle: (?P<reason>[^\n]{1,60})"),
            Pattern("DNN library initialization failed", r"DNN library initialization failed"),
            literal("Unable to use CUDA because of the following issues with CUDA components"),
            Pattern(
                ". Is it installed?", r"Unable to load (?P<library>cu[A-Z]\w{2,10}|CUDA|CUPTI)\. Is it installed\?"
            ),
            Pattern("Error loading CUDA libraries", r"Error loading CUDA libraries\. GPU will not be used"),
            Pattern(
                "This is probably because cuDNN failed to initialize",
                r"Failed to get convolution algorithm\. This is probably because cuDNN failed to initialize",
            ),
            Pattern("CUDNN_STATUS_", r"(?P<status>CUDNN_STATUS_\w{4,40})\s{0,3}in external/xla/"),
            Pattern(
                "but JAX was built against version",
                r"Found (?P<library>cu\w{2,12}|CUDA) version (?P<loaded>[\d.]{1,12}), but JAX was built against"
                r" version (?P<required>[\d.]{1,12})",
            ),
        ),
        causes=(
            "LD_LIBRARY_PATH or the system has an older library, which is loaded instead of that of the pip package.",
            "PyTorch in the same environment pins an older cuDNN.",
            "A handle could not be created: the GPU has no memory left for the library.",
        ),
        fixes=(
            _UNSET_PATH,
            Fix(
                "Upgrade JAX together with its libraries; use cuda13 if that is installed.",
                'pip install --upgrade "jax[cuda12]"',
                first_for=("JAX",),
            ),
            Fix(
                "Install TensorFlow with the cuDNN for which it was built.",
                'pip install --upgrade "tensorflow[and-cuda]"',
                first_for=("DNN library is not found", "Loaded runtime CuDNN"),
            ),
            Fix(
                "Upgrade cuDNN alone; for CUDA 13, its name is nvidia-cudnn-cu13.",
                "pip install --upgrade nvidia-cudnn-cu12",
                first_for=("old cuDNN",),
            ),
            Fix("Install JAX and PyTorch in separate environments.", "python -m venv jax-env"),
            replace(_NO_PREALLOCATION, first_for=(" handle", "launch failed")),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_JAX_INSTALL, _TF_INSTALL),
        said_by="jaxlib 0.4-0.7",
    ),
    KnownError(
        id="xla-cpu-only",
        section=SECTION,
        title="JAX or TensorFlow runs on the CPU",
        summary="JAX or TensorFlow found no GPU that it can use and runs on the CPU.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "An NVIDIA GPU may be present on this ",
                r"An NVIDIA GPU may be present on this \w{1,10}, but a CUDA-enabled jaxlib is not installed",
            ),
            Pattern("No GPU/TPU found, falling back to CPU", r"No GPU/TPU found, falling back to CPU"),
            Pattern(
                "Unable to initialize backend",
                r"Unable to initialize backend '(?P<backend>cuda|gpu)': (?P<reason>(?!INVALID_ARGUMENT:"
                r" Mis)[^\n]{1,160})",
            ),
            Pattern(
                "Could not find cuda drivers on your machine",
                r"Could not find cuda drivers on your machine, GPU will not be used",
            ),
            Pattern("Cannot dlopen some GPU libraries", r"Cannot dlopen some GPU libraries"),
            literal("Skipping registering GPU devices"),
            Pattern(
                "Could not load dynamic library",
                r"Could not load dynamic library '(?P<library>[\w.+-]{4,60})'; dlerror",
            ),
            Pattern(
                "failed call to cuInit",
                r"failed call to cuInit: (?P<reason>(?![^\n]{0,60}?CUDA_ERROR_)[^\n]{1,120})",
            ),
            Pattern("Jax plugin configuration error", r"Jax plugin configuration error"),
            Pattern(
                "no platforms that are instances of gpu",
                r"Unknown backend: '(?P<backend>gpu|cuda)' requested, but no platforms that are instances of gpu",
            ),
        ),
        causes=(
            "The package without CUDA is installed: `jax` instead of `jax[cuda12]`, `tensorflow` without `[and-cuda]`.",
            "The CUDA libraries are missing, or LD_LIBRARY_PATH names others.",
            "The driver is missing, too old, or not passed into the container. On Windows, TensorFlow needs WSL.",
        ),
        fixes=(
            Fix(
                "Install JAX with CUDA; cuda13 needs a driver of branch 580 or later.",
                'pip install --upgrade "jax[cuda12]"',
            ),
            Fix(
                "Install TensorFlow with CUDA.",
                'pip install --upgrade "tensorflow[and-cuda]"',
                first_for=(
                    "cuda drivers on your machine",
                    "dlopen some GPU",
                    "Skipping registering",
                    "load dynamic library",
                ),
            ),
            Fix(
                "Check whether the host, and the container, gives the program a GPU.",
                'nvidia-smi -L; echo "$CUDA_VISIBLE_DEVICES"',
                first_for=("No visible GPU", "no supported devices"),
            ),
            replace(_UNSET_PATH, first_for=("Jax plugin configuration",)),
            fixes.DRIVER_CUDA_VERSION,
            Fix("Print what JAX sees.", "python -c 'import jax; print(jax.devices())'"),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(_JAX_INSTALL, _TF_INSTALL),
        said_by="jaxlib 0.7",
        is_warning=True,
    ),
    KnownError(
        id="xla-ptxas",
        section=SECTION,
        title="XLA: ptxas does not fit",
        summary="The compiler tools that XLA found do not fit the GPU, the driver or each other, or they failed.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("ptxas too old", r"ptxas too old\. Falling back to the driver to compile"),
            literal("find a suitable version of ptxas"),
            Pattern(
                "ptxas exited with non-zero error code", r"ptxas exited with non-zero error code (?P<code>-?\d{1,6})"
            ),
            Pattern("ptxas returned an error", r"ptxas returned an error during compilation of ptx to sass"),
            Pattern("Can't find libdevice directory", r"Can't find libdevice directory \$\{CUDA_DIR\}/nvvm/libdevice"),
            literal("libdevice not found at ./libdevice.10.bc"),
            Pattern(
                "nvlink exited with non-zero error code", r"nvlink exited with non-zero error code (?P<code>-?\d{1,6})"
            ),
            Pattern(
                "NVIDIA driver's CUDA version is",
                r"NVIDIA driver's CUDA version is (?P<driver>[\d.]{1,8}) which is older than the (?:ptxas|PTX)",
            ),
            literal("No PTX compilation provider is available"),
            Pattern("ptxas not found", r"Not found: \S{0,80}\bptxas not found"),
            Pattern(
                "does not support target 'sm_",
                r"PTX version (?P<version>[\d.]{1,5}) does not support target '(?P<capability>sm_\d{2,3}[af]?)'",
            ),
            Pattern(
                "You are using ptxas",
                r"You are using ptxas (?P<version>[\d.x]{1,12}), (?:which is older than|but TF requires)",
            ),
            Pattern("ptxas does not support CC", r"ptxas does not support CC (?P<capability>\d{1,2}\.\d)"),
        ),
        causes=(
            "The CUDA toolkit on PATH is older than the GPU.",
            "No CUDA toolkit is installed, and the pip package with ptxas and libdevice is missing.",
            "The driver is older than the compiler; the program then runs, and only its compilation takes longer.",
        ),
        fixes=(
            Fix(
                "Install the compiler as a pip package; for CUDA 13, its name is nvidia-cuda-nvcc.",
                "pip install --upgrade nvidia-cuda-nvcc-cu12",
            ),
            Fix("Show which one is found first.", "which -a ptxas"),
            Fix("Or name the toolkit.", "XLA_FLAGS=--xla_gpu_cuda_data_dir=/usr/local/cuda python train.py"),
            Fix(
                "If only the driver is older, upgrade it and reboot.",
                "sudo ubuntu-drivers install && sudo reboot",
                first_for=("driver's CUDA version",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_JAX_INSTALL, _TF_INSTALL),
        said_by="jaxlib 0.7",
    ),
    KnownError(
        id="cupy-library",
        section=SECTION,
        title="CuPy or Numba: CUDA library missing",
        summary="CuPy or Numba found no CUDA library of the version for which it was built.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("CuPy failed to load ", r"CuPy failed to load (?P<library>[\w.+-]{4,40})"),
            Pattern("CuPy is not correctly installed", r"CuPy is not correctly installed"),
            Pattern("ultiple CuPy packages are installed", r"[Mm]ultiple CuPy packages are installed"),
            Pattern("libNVVM cannot be ", r"libNVVM cannot be (?:found|loaded)"),
            name("NvvmSupportError"),
            name("NvrtcSupportError"),
            Pattern("NVRTCError: NVRTC_ERROR", r"NVRTCError: NVRTC_ERROR"),
            Pattern("CudaSupportError: Error at driver init", r"CudaSupportError: Error at driver init"),
            Pattern("/libdevice.10.bc'", r"No such file or directory: '[^'\n]{0,160}/libdevice\.10\.bc'"),
            Pattern("auto-detect CUDA root directory", r"Failed to auto-detect CUDA root directory"),
            Pattern(
                "catastrophic error: cannot open source file",
                r"catastrophic error: cannot open source file \"(?P<header>[\w./-]{1,60})\"",
            ),
        ),
        causes=(
            "The package is for another CUDA version than the installed toolkit, or no toolkit is installed.",
            "Two packages of CuPy are installed in one environment.",
        ),
        fixes=(
            Fix(
                "Install one CuPy for the driver's CUDA version, with its libraries; for CUDA 13, cupy-cuda13x.",
                'pip uninstall -y cupy cupy-cuda11x cupy-cuda12x && pip install "cupy-cuda12x[ctk]"',
            ),
            Fix("For Numba, install its CUDA target with the libraries.", 'pip install "numba-cuda[cu12]"'),
            Fix("Show what CuPy finds.", "python -c 'import cupy; cupy.show_config()'"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.cupy.dev/en/stable/install.html", "https://nvidia.github.io/numba-cuda/"),
        said_by="CuPy 13.6",
    ),
    KnownError(
        id="cupy-oom",
        section=SECTION,
        title="CuPy, RAPIDS or FAISS: out of memory",
        summary="An allocation of CuPy, RAPIDS, FAISS or LightGBM did not fit into the GPU's memory.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "cupy.cuda.memory.OutOfMemoryError",
                r"cupy\.cuda\.memory\.OutOfMemoryError(?:: Out of memory allocating (?P<requested>[\d,]{1,24}) bytes)?",
            ),
            Pattern(
                "Out of memory allocating",
                r"Out of memory allocating (?P<requested>[\d,]{1,24}) bytes \(allocated so far",
            ),
            Pattern("std::bad_alloc: out_of_memory", r"std::bad_alloc: out_of_memory: (?:CUDA|RMM)"),
            Pattern("StandardGpuResources: alloc fail", r"StandardGpuResources: alloc fail [^\n]{1,300}?out of memory"),
            literal("(-217:Gpu API call) out of memory"),
            Pattern(
                "reserve temporary memory region of",
                r"could not reserve temporary memory region of size (?P<bytes>\d{1,16})",
            ),
            Pattern("[CUDA] out of memory", r"\[LightGBM\] \[Fatal\] \[CUDA\] out of memory"),
            Pattern(
                "aximum pool size exceeded", r"(?:RMM failure|out_of_memory)[^\n]{0,160}[Mm]aximum pool size exceeded"
            ),
        ),
        causes=("CuPy's pool or another library holds the memory.", "The data does not fit at once."),
        fixes=(
            Fix(
                "Free the blocks that CuPy's pool keeps.",
                "import cupy\n\ncupy.get_default_memory_pool().free_all_blocks()",
            ),
            fixes.LIST_PROCESSES,
            Fix("Let CuPy and PyTorch share one pool: `cupy.cuda.set_allocator` with PyTorch's allocator."),
        ),
        empty_cache="Frees only what PyTorch's cache holds; CuPy has its own pool.",
        sources=("https://docs.cupy.dev/en/stable/user_guide/memory.html", sources.CUDA_NOTES),
        said_by="CuPy 13.6",
    ),
    KnownError(
        id="tf-registered-twice",
        section=SECTION,
        title="TensorFlow registers a library twice",
        summary="TensorFlow reports that a library of CUDA was already registered; this has no effect.",
        context=ContextState.ALIVE,
        patterns=(Pattern("Unable to register cu", r"Unable to register (?P<library>cu\w{2,8}) factory"),),
        causes=("Two parts of TensorFlow, or TensorFlow and JAX in one process, register the same library.",),
        fixes=(
            Fix("Take no action; if no GPU is used, look for another message."),
            Fix(
                "Check whether TensorFlow finds the GPU.",
                "python -c 'import tensorflow as tf; print(tf.config.list_physical_devices(\"GPU\"))'",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/tensorflow/tensorflow/issues/62002",
            "https://github.com/tensorflow/tensorflow/issues/62075",
        ),
        said_by="TensorFlow 2.14-2.17",
        is_warning=True,
    ),
)
