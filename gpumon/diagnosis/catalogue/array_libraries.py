"""Errors of libraries for arrays and trees on GPUs: FAISS, RAPIDS, XGBoost, LightGBM, CatBoost, Numba."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes
from gpumon.diagnosis.catalogue.wording import NO_CONTEXT_YET, NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "FAISS, RAPIDS, XGBoost and Numba"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="faiss-build",
        section=SECTION,
        title="FAISS: a call of CUDA or cuBLAS failed",
        summary="FAISS could not start or compute on the GPU, mostly because its package is older than the GPU.",
        context=ContextState.DEAD,
        patterns=(
            Pattern("; details: cublas failed (", r"; details: cublas failed \((?P<status>\d{1,3})\): \("),
            Pattern("Faiss assertion 'err == CUBLAS", r"Faiss assertion 'err == CUBLAS_STATUS_SUCCESS' failed"),
            Pattern("cublasGemmStridedBatchedEx failed", r"cublasGemmStridedBatchedEx failed \((?P<status>\d{1,3})\)"),
            Pattern("== cudaSuccess' failed", r"Faiss assertion 'err_{0,2} == cudaSuccess' failed"),
            Pattern(
                "blasStatus == CUBLAS_STATUS_SUCCESS", r"Faiss assertion 'blasStatus == CUBLAS_STATUS_SUCCESS' failed"
            ),
        ),
        causes=(
            (
                "The package `faiss-gpu` of PyPI is of 2022, for CUDA 11 and GPUs up to Ampere; status 13 is what newer"
                " GPUs answer."
            ),
            "The GPU has no memory left: FAISS reserves up to 18% of it for itself at the start.",
            "Two threads use one `StandardGpuResources` at once.",
            "The vectors contain no data, or are not contiguous.",
        ),
        fixes=(
            Fix("Install a current build.", "pip uninstall -y faiss-gpu faiss-cpu && pip install faiss-gpu-cu12"),
            Fix(
                "Or the package of its developers, which has the code for all GPUs.",
                "conda install -c pytorch -c nvidia -c conda-forge faiss-gpu",
            ),
            Fix(
                "Let FAISS reserve less memory.",
                "resources = faiss.StandardGpuResources()\nresources.setTempMemory(256 * 2**20)",
                first_for=("out of memory",),
            ),
            Fix("Use one `StandardGpuResources` per thread, with contiguous float32 vectors."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/facebookresearch/faiss/issues/3520",
            "https://github.com/facebookresearch/faiss/blob/main/INSTALL.md",
        ),
        said_by="FAISS 1.6-1.12",
    ),
    KnownError(
        id="faiss-resources",
        section=SECTION,
        title="FAISS: GPU resources are used wrongly",
        summary="FAISS checks how its resources on the GPU are used, and a check failed.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("Faiss assertion 'allocs_", r"Faiss assertion 'allocs_\.count\(device\) == 0' failed"),
            literal("config_.device < getNumDevices()"),
            literal("This index type is not implemented on GPU"),
            literal("cannot clone this type of index"),
            Pattern(
                "module 'faiss' has no attribute",
                r"module 'faiss' has no attribute"
                r" '(?P<name>StandardGpuResources|GpuIndex\w{1,30}|index_cpu_to_\w{1,12})'",
            ),
        ),
        causes=(
            "Several threads of a server use the same resources while they are set up.",
            "The index has no version for GPUs, or the package is the one for the CPU.",
        ),
        fixes=(
            Fix("Guard the resources by a lock, or create them once per thread before the first search."),
            Fix("Install the package for GPUs.", "pip uninstall -y faiss-cpu && pip install faiss-gpu-cu12"),
            Fix("Use a kind of index that exists for GPUs: Flat, IVFFlat, IVFPQ or CAGRA."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/facebookresearch/faiss/wiki/Faiss-on-the-GPU",),
        said_by="FAISS 1.7-1.12",
    ),
    KnownError(
        id="boosting-cpu-build",
        section=SECTION,
        title="XGBoost, LightGBM or CatBoost without a GPU",
        summary="This build of the library has no code for CUDA, or finds no GPU that it can use.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("XGBoost version not compiled with GPU support"),
            Pattern(
                "Tree Learner was not enabled in this build",
                r"(?P<kind>GPU|CUDA) Tree Learner was not enabled in this build",
            ),
            literal("No OpenCL device found"),
            Pattern("Environment for task type [GPU] not found", r"Environment for task type \[GPU\] not found"),
            literal("No visible GPU is found for XGBoost"),
        ),
        causes=(
            "LightGBM's package on PyPI has only OpenCL (`gpu`); CUDA must be compiled.",
            "The package is the one for the CPU, as `xgboost-cpu`, or of a channel without CUDA.",
            "The driver is missing, or not passed into the container.",
        ),
        fixes=(
            Fix(
                "For XGBoost, install the full package.",
                "pip uninstall -y xgboost-cpu && pip install --upgrade xgboost",
            ),
            Fix(
                "For LightGBM, compile it with CUDA, and use device_type=cuda.",
                "pip install --no-binary lightgbm --config-settings=cmake.define.USE_CUDA=ON lightgbm",
                first_for=("CUDA Tree", "USE_CUDA"),
            ),
            Fix(
                "Or use LightGBM's OpenCL version, if the driver's OpenCL is installed.",
                "clinfo -l",
                first_for=("OpenCL",),
            ),
            Fix(
                "Check that the GPU is visible.",
                "nvidia-smi -L",
                first_for=("visible GPU", "Environment for task type"),
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(
            "https://xgboost.readthedocs.io/en/stable/gpu/index.html",
            "https://lightgbm.readthedocs.io/en/stable/GPU-Tutorial.html",
        ),
        said_by="XGBoost 1.7-3.0, LightGBM 3-4, CatBoost 1.2",
    ),
    KnownError(
        id="xgboost-parameter",
        section=SECTION,
        title="XGBoost: old way to ask for the GPU",
        summary="The parameters `gpu_hist`, `gpu_id` and `gpu_predictor` were replaced by `device`.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("Invalid Input: 'gpu_hist'", r"Invalid Input: '(?P<value>gpu_hist)'"),
            Pattern("The tree method `gpu_hist` is deprecated", r"The tree method `gpu_hist` is deprecated"),
            Pattern(
                "Parameters: {",
                r"Parameters: \{[^}\n]{0,80}\"(?:gpu_id|predictor)\"[^}\n]{0,80}\} (?:are|might) not (?:be )?used",
            ),
        ),
        causes=("Since XGBoost 2.0, `device` names the GPU and `tree_method` the algorithm.",),
        fixes=(Fix("Use the parameter device.", 'model = xgboost.XGBClassifier(tree_method="hist", device="cuda")'),),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://xgboost.readthedocs.io/en/stable/gpu/index.html",),
        said_by="XGBoost 2.0-3.1",
    ),
    KnownError(
        id="numba-link",
        section=SECTION,
        title="Numba: compiler and libraries are of different versions",
        summary="Numba compiled for another CUDA version than that of the linker or of the driver.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("in nvvmAddNVVMContainerToProgram", r"ERROR (?P<code>\d{1,3}) in nvvmAddNVVMContainerToProgram"),
            literal("may need newer version of nvJitLink library"),
            Pattern("requires nvJitLink", r"(?:Link time optimization|LTO) requires nvJitLink"),
            Pattern("NVIDIA CUDA Python bindings not found", r"NVIDIA CUDA Python bindings not found"),
        ),
        causes=(
            "The environment has wheels for CUDA 12 and CUDA 13 at once.",
            "The target that is built into Numba is no longer developed; numba-cuda replaces it.",
        ),
        fixes=(
            Fix(
                "Install numba-cuda with the libraries of one CUDA version.", 'pip install --upgrade "numba-cuda[cu12]"'
            ),
            Fix("Show which libraries Numba finds.", "python -m numba -s | grep -A 40 -i 'cuda information'"),
            Fix("Remove the wheels of the other CUDA version.", "pip list | grep -i -E 'nvidia|cuda'"),
            fixes.DRIVER_CUDA_VERSION,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://nvidia.github.io/numba-cuda/", "https://github.com/numba/numba/issues/10353"),
        said_by="numba-cuda 0.30",
    ),
    KnownError(
        id="rapids-library",
        section=SECTION,
        title="RAPIDS: packages of different versions",
        summary="A library of RAPIDS is missing, or needs functions that another library in this version does not"
        " have.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "undefined symbol: ",
                r"(?P<library>lib(?:cudf|cuml|cugraph|raft|cuvs|rmm|kvikio|ucxx|cucim)[\w+]{0,20}\.so[\w.]{0,12}):"
                r" undefined symbol: (?P<symbol>_Z\w{1,60})",
            ),
        ),
        causes=(
            "The packages cudf, cuml, rmm and pylibraft must have one version, and be for one CUDA version.",
            "The package pyarrow or another dependency was changed by a later installation.",
        ),
        fixes=(
            Fix("Show the versions.", "pip list | grep -i -E 'cudf|cuml|rmm|raft|cuvs|pyarrow|cuda'"),
            Fix(
                "Install all of them together in a new environment.",
                "pip install --extra-index-url=https://pypi.nvidia.com cudf-cu12 cuml-cu12",
            ),
            Fix("Choose the command for the system with the selector of RAPIDS: docs.rapids.ai/install."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.rapids.ai/install/", "https://github.com/NVIDIA/cudf/issues/14530"),
        said_by="RAPIDS 23-25",
    ),
    KnownError(
        id="rapids-call",
        section=SECTION,
        title="RAPIDS: a function refused its input",
        summary="A function of RAPIDS checked its arguments or the file that it reads, and stopped: the reason is at"
        " the end of the message.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("RAFT failure at file", r"RAFT failure at file=(?P<file>\S{1,160}) line=\d{1,6}"),
            Pattern("cuDF failure at", r"cuDF failure at ?: ?(?P<file>\S{1,160})"),
        ),
        causes=(
            "An argument is out of its range: k or the number of clusters, an empty table.",
            "Types, lengths or a format of the input are not supported by this version.",
            "The reason is a CUDA error or memory: then an earlier call failed.",
        ),
        fixes=(
            Fix("Read the reason at the end of the message, and print the shapes and types of the input."),
            Fix("Upgrade all packages of RAPIDS together.", "pip install --upgrade cudf-cu12 cuml-cu12"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/rapidsai/raft", "https://github.com/rapidsai/cudf"),
        said_by="RAPIDS 23-25",
    ),
)
