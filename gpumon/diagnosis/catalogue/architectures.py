"""Errors of builds without code for the GPU's architecture."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.kernels import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, cuda_error, name, not_hip
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_COMPARE_ARCHITECTURES: Final = Fix(
    "Compare the architectures that PyTorch was built for with the GPU's compute capability.",
    """\
import torch

print(torch.cuda.get_arch_list(), torch.cuda.get_device_capability())""",
)

_NEWER_BUILD: Final = Fix(
    "For Blackwell (compute capability 10.0 and 12.0), install a build for CUDA 12.8 or later.",
    "pip install --force-reinstall torch torchvision --index-url https://download.pytorch.org/whl/cu130",
)
_OLDER_BUILD: Final = Fix(
    "For Volta, Pascal and Maxwell, install a build for CUDA 12.6, the last one that supports them.",
    "pip install --force-reinstall torch torchvision --index-url https://download.pytorch.org/whl/cu126",
)

_DRIVER_OF_BUILD: Final = Fix(
    "Check the driver before: a build for CUDA 13 needs branch 580, one for CUDA 12 needs 525; upgrade an older one.",
    "nvidia-smi --query-gpu=driver_version --format=csv,noheader",
)

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="no-kernel-image",
        section=SECTION,
        title="No kernel for this GPU",
        summary="The binary contains no code for the architecture of this GPU.",
        context=ContextState.ALIVE,
        patterns=(
            not_hip("no kernel image is available for execution on the device"),
            cuda_error("invalid device function"),
            name("cudaErrorNoKernelImageForDevice"),
            Pattern("Cuda error: 209[", r"Cuda error: 209\["),
            name("cudaErrorInvalidDeviceFunction"),
            name("CUDA_ERROR_NO_BINARY_FOR_GPU"),
            Pattern(
                "but was built for sm",
                r"(?:kernel `(?P<kernel>[^`\n]{1,160})`|this function) is for sm\d{2,4}(?:-sm\d{2,3})?, but"
                r" was built for sm(?P<built>\d{2,4})",
            ),
            Pattern(
                "Could not find compatible tinycudann extension",
                r"Could not find compatible tinycudann extension for compute capability (?P<gpu>\d{2,3})",
            ),
        ),
        causes=(
            "The GPU is newer than PyTorch, or older than this build supports.",
            "An extension was built on a host with another GPU.",
        ),
        fixes=(
            _COMPARE_ARCHITECTURES,
            _NEWER_BUILD,
            _OLDER_BUILD,
            Fix(
                "Build tiny-cuda-nn for this GPU, whose capability the message names.",
                "TCNN_CUDA_ARCHITECTURES=86 pip install --no-build-isolation --no-cache-dir --force-reinstall"
                " 'git+https://github.com/NVlabs/tiny-cuda-nn/#subdirectory=bindings/torch'",
                first_for=("tinycudann",),
            ),
            Fix(
                "ONNX Runtime brings its own kernels: upgrade it.",
                "pip install --upgrade onnxruntime-gpu",
                first_for=("ONNXRuntimeError",),
            ),
            Fix(
                "Build the extension for your GPU, for example compute capability 8.6.",
                "TORCH_CUDA_ARCH_LIST=8.6 pip install --no-build-isolation --no-cache-dir --force-reinstall PACKAGE",
                first_for=("CUDA kernel failed",),
            ),
            _DRIVER_OF_BUILD,
            Fix(
                "For CuPy, install its current build, and delete its compiled kernels.",
                "pip install --upgrade cupy-cuda12x; rm -rf ~/.cupy/kernel_cache",
                first_for=("CUDADriverError",),
            ),
            Fix(
                "Build llama-cpp-python for the GPU of this host, which needs the CUDA toolkit; or install a wheel"
                " with code for this GPU.",
                'CMAKE_ARGS="-DGGML_CUDA=on -DCMAKE_CUDA_ARCHITECTURES=native" pip install --force-reinstall'
                " --no-cache-dir --no-binary llama-cpp-python llama-cpp-python",
                first_for=("llama-cpp-python",),
            ),
            Fix(
                "Build llama.cpp for the GPUs of this host in an empty folder; the RTX 50 series needs CUDA 12.8 or"
                " later.",
                "cmake -E rm -rf build && cmake -B build -DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=native && cmake"
                " --build build -j",
                first_for=("llama.cpp",),
            ),
            Fix(
                "If another program brings llama.cpp, such as Ollama or LM Studio, update that program.",
                first_for=("llama.cpp",),
            ),
            Fix(
                "The kernel is that of bitsandbytes, not PyTorch's: install a version that was built for this GPU.",
                "pip install --upgrade bitsandbytes && python -m bitsandbytes",
                first_for=("bitsandbytes",),
                hidden_otherwise=True,
            ),
            Fix(
                "The kernel is Nunchaku's, not PyTorch's: install its newest wheel, and the model for your GPU:"
                " FP4 for Blackwell, INT4 for older ones.",
                "python -c 'import torch; print(torch.__version__, torch.cuda.get_device_capability())'",
                first_for=("nunchaku",),
                hidden_otherwise=True,
            ),
            Fix(
                "A program that is one .exe file brings its own PyTorch: download its newest release, or run it from"
                " its source with a newer PyTorch.",
                first_for=("PyInstaller",),
                hidden_otherwise=True,
            ),
            fixes.OTHER_ATTENTION,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.SHOW_VERSIONS,),
        sources=(sources.CUDA_ERRORS, sources.PYTORCH_INSTALL),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, vLLM 0.4, Triton 2.0-3.6",
    ),
    KnownError(
        id="arch-warning",
        section=SECTION,
        title="PyTorch build does not support the GPU",
        summary=(
            "PyTorch warns that it has no kernels for a GPU of this host; operations on that GPU then fail with `no "
            "kernel image is available`."
        ),
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "which is of compute capability (CC)",
                r"Found GPU(?P<gpu>\d{1,4})(?! NVIDIA GB10\b) (?P<name>[^\n]{1,100}?) which is of compute capability"
                r" \(CC\) (?P<capability>\d{1,3}\.\d)",
            ),
            Pattern(
                "which is of cuda capability",
                r"Found GPU(?P<gpu>\d{1,4})(?! NVIDIA GB10\b) (?P<name>[^\n]{1,100}?) which is of cuda capability"
                r" (?P<capability>\d{1,3}\.\d)",
            ),
            Pattern(
                "not compatible with the current PyTorch",
                r"with CUDA capabilit(?:y|ies) sm_(?P<capability>\d{1,4}\w?) (?:is )?not compatible"
                r" with the current PyTorch [Ii]nstal",
            ),
        ),
        causes=(
            "The GPU is newer than this PyTorch.",
            "The GPU is older than this build supports: CUDA 13 requires Turing (compute capability 7.5) or newer.",
        ),
        fixes=(
            Fix("Install the build that the warning names, if any."),
            _NEWER_BUILD,
            _OLDER_BUILD,
            _COMPARE_ARCHITECTURES,
            _DRIVER_OF_BUILD,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.SHOW_VERSIONS,),
        sources=(sources.PYTORCH_INSTALL, "https://github.com/pytorch/pytorch/blob/main/torch/cuda/__init__.py"),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="arch-compatible",
        section=SECTION,
        title="GPU newer than this build, but compatible",
        summary=(
            "PyTorch warns about the GB10 of a DGX Spark, which runs the build's kernels for compute capability 12.0."
        ),
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "Found GPU",
                r"Found GPU(?P<gpu>\d{1,4}) (?P<name>NVIDIA GB10) which is of (?:cuda|compute) capability(?: \(CC\))?"
                r" (?P<capability>\d{1,3}\.\d)",
            ),
        ),
        causes=("The GPU has compute capability 12.1, and the warning compares only with the maximum of the build.",),
        fixes=(
            Fix("Ignore the warning if the program works: code for 12.0 also runs on 12.1."),
            Fix(
                "To avoid the warning, install a build for CUDA 13.",
                "pip install --force-reinstall torch torchvision --index-url https://download.pytorch.org/whl/cu130",
            ),
            Fix(
                "Build extensions that report `no kernel image` for this GPU.",
                "TORCH_CUDA_ARCH_LIST=12.1 pip install --no-build-isolation --no-cache-dir --force-reinstall PACKAGE",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(_COMPARE_ARCHITECTURES,),
        sources=(sources.PYTORCH_INSTALL, "https://github.com/pytorch/pytorch/blob/main/torch/cuda/__init__.py"),
        is_echo=True,
    ),
)
