"""Errors of packages that were built for another PyTorch or GPU: torchvision, xFormers, Triton, NumPy."""

from typing import Final

from gpumon.diagnosis.catalogue import sources
from gpumon.diagnosis.catalogue.toolchain import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_VISION_VERSIONS: Final = "https://github.com/pytorch/vision#installation"

_MATCHING: Final = Fix(
    "Install the three packages together, so that their versions match.",
    "pip install --force-reinstall torch torchvision torchaudio --index-url https://download.pytorch.org/whl/cu130",
)

_TRITON_OF_PYTORCH: Final = (
    "pip install --force-reinstall --no-deps \"$(python -c 'import importlib.metadata as m;"
    ' print(next(r for r in m.requires("torch") if "triton" in r).split(";")[0])\')"'
)
ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="torchvision-mismatch",
        section=SECTION,
        title="torchvision or torchaudio does not match PyTorch",
        summary="The package was built for another version of PyTorch or without CUDA, so its operators are missing.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("operator torchvision::nms does not exist"),
            Pattern("No such operator torchvision::", r"No such operator torchvision::(?P<operator>\w{1,40})"),
            Pattern(
                "Could not run 'torchvision::",
                r"Could not run 'torchvision::(?P<operator>\w{1,40})' with arguments from the"
                r" '(?P<backend>\w{1,20})' backend",
            ),
            literal("partially initialized module 'torchvision' has no attribute 'extension'"),
            Pattern(
                "'_OpNamespace' 'torchvision' object",
                r"'_OpNamespace' 'torchvision' object has no attribute '(?P<operator>\w{1,40})'",
            ),
            Pattern(
                "Detected that PyTorch and ",
                r"Detected that PyTorch and (?P<package>torchvision|TorchAudio|torchaudio) were compiled with"
                r" different CUDA"
                r" (?:major )?versions",
            ),
            literal(
                "Couldn't load custom C++ ops. This can happen if your PyTorch and torchvision versions are"
                " incompatible"
            ),
        ),
        causes=(
            "PyTorch was upgraded without torchvision, or the reverse.",
            "One of them comes from the CPU index and the other from a CUDA index.",
        ),
        fixes=(
            _MATCHING,
            Fix(
                "Check the versions; both must end in the same suffix.",
                "pip list | grep -i -E '^(torch|torchvision|torchaudio) '",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_VISION_VERSIONS, sources.PYTORCH_INSTALL),
        said_by="torchvision 0.14-0.24",
    ),
    KnownError(
        id="xformers-mismatch",
        section=SECTION,
        title="xFormers does not match PyTorch",
        summary="The compiled part of xFormers was built for another PyTorch, Python or CUDA, and was not loaded.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("xFormers can't load C++/CUDA extensions"),
            Pattern("xFormers was built for:", r"xFormers was built for:"),
            Pattern(
                "memory_efficient_attention() got an unexpected",
                r"memory_efficient_attention\(\) got an unexpected keyword argument '(?P<argument>\w{1,40})'",
            ),
        ),
        causes=("PyTorch was upgraded after xFormers was installed, or the wheel belongs to another CUDA version.",),
        fixes=(
            Fix(
                "Install both together from the same index.",
                "pip install --upgrade torch xformers --index-url https://download.pytorch.org/whl/cu130",
            ),
            Fix("Or remove it: most programs then use PyTorch's own attention.", "pip uninstall -y xformers"),
            Fix("Show what is missing.", "python -m xformers.info"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/facebookresearch/xformers#installing-xformers",),
        said_by="xFormers 0.0.22-0.0.33",
    ),
    KnownError(
        id="xformers-operator",
        section=SECTION,
        title="xFormers: no attention kernel for these inputs",
        summary="None of xFormers' kernels supports the device, type, shape or bias of these tensors.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "No operator found for `memory_efficient_attention",
                r"No operator found for `(?P<operator>memory_efficient_attention\w{0,30})` with inputs",
            ),
            Pattern("wasn't build with CUDA support", r"xFormers (?P<build>wasn't build with CUDA support)"),
            Pattern(
                "requires device with capability > (",
                r"requires device with capability > \((?P<required>\d{1,2}, \d)\) but your GPU has capability"
                r" \((?P<capability>\d{1,2}, \d)\)",
            ),
        ),
        causes=(
            "This build has no kernels for the GPU or none for CUDA at all; the lines below state the reason.",
            "The tensors are on the CPU or in float32, or the head size is not supported.",
        ),
        fixes=(
            Fix(
                "If the tensors are on the CPU, where xFormers has no kernels, move the model and its input to the GPU,"
                " or do without xFormers.",
                "export XFORMERS_DISABLED=1",
                first_for=("xFormers on the CPU",),
            ),
            Fix(
                "In ComfyUI, use PyTorch's attention.",
                "python main.py --use-pytorch-cross-attention",
                first_for=("ComfyUI",),
            ),
            Fix("Read the reasons below: one for each kernel."),
            Fix(
                "Install the xFormers with CUDA that was built for the installed PyTorch; its releases name that"
                " version.",
                "python -m xformers.info\n"
                "pip install --force-reinstall --no-deps xformers==VERSION --index-url"
                " https://download.pytorch.org/whl/cu130",
                first_for=("wasn't build with CUDA", "xFormers too old"),
            ),
            Fix(
                "Or use PyTorch's attention instead.",
                "output = torch.nn.functional.scaled_dot_product_attention(query, key, value)",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(Fix("Show which kernels are available.", "python -m xformers.info"),),
        sources=("https://github.com/facebookresearch/xformers/blob/main/xformers/ops/fmha/dispatch.py",),
    ),
    KnownError(
        id="triton-mismatch",
        section=SECTION,
        title="Triton does not match PyTorch",
        summary="PyTorch uses a part of Triton that this version of Triton does not have, or no longer has.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "' from 'triton.compiler.compiler'",
                r"cannot import name '(?P<name>triton_key|AttrsDescriptor)' from 'triton\.compiler\.compiler'",
            ),
            literal("type object 'CompiledKernel' has no attribute 'launch_enter_hook'"),
        ),
        causes=("Triton was installed or upgraded independently of PyTorch, and is older or newer than required.",),
        fixes=(
            Fix("Install the Triton that the installed PyTorch requires.", _TRITON_OF_PYTORCH),
            Fix(
                "On Windows, install the triton-windows for your PyTorch: 3.3 belongs to PyTorch 2.7, 3.4 to 2.8.",
                "pip install 'triton-windows<3.4'",
                first_for=("Windows",),
            ),
            Fix(
                "If another package needs this Triton, upgrade PyTorch instead, with the packages built for it.",
                "pip install --upgrade torch",
            ),
            Fix("Or do without compilation.", "TORCHDYNAMO_DISABLE=1 python train.py"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TRITON, "https://github.com/pytorch/pytorch/issues/127271"),
        said_by="torch 2.3-2.13, Triton 2.3-3.6",
    ),
    KnownError(
        id="triton-missing",
        section=SECTION,
        title="Triton is not installed or finds no GPU",
        summary="The program needs Triton, which is missing, does not match, or sees no GPU driver.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("No module named 'triton'"),
            literal("Cannot find a working triton installation"),
            Pattern(
                "active drivers (",
                r"(?P<drivers>\d) active drivers \(\[[^\n]{0,80}\]\)\. There should only be one",
            ),
            Pattern(
                "compatible backends for target (",
                r"(?P<drivers>\d) compatible backends for target \((?P<target>\w{1,12})\)",
            ),
            literal("Could not find an active GPU backend"),
            literal("DLL load failed while importing libtriton"),
        ),
        causes=(
            "On Windows and macOS, PyTorch installs no Triton.",
            "0 active drivers: the process sees no GPU, such as in a container without GPUs.",
            "Triton was upgraded independently of PyTorch, or the GPU is too old for its kernels.",
        ),
        fixes=(
            Fix(
                "This PyTorch is older than 2.6, and newer versions of Triton do not fit it: on Windows, install the"
                " last one that does, or upgrade PyTorch too.",
                'pip install "triton-windows<3.2"',
                first_for=("github.com/openai/triton",),
                hidden_otherwise=True,
            ),
            Fix(
                "On Windows, install its build of Triton; the newest one needs the newest PyTorch.",
                "pip install --upgrade triton-windows",
            ),
            Fix(
                "On Linux, install the Triton that belongs to PyTorch.",
                _TRITON_OF_PYTORCH,
                first_for=("compatible backends",),
            ),
            Fix(
                "Check that the process sees a GPU.",
                "python -c 'import torch; print(torch.cuda.is_available())'",
                first_for=("active ",),
            ),
            Fix(
                "Install the current Visual C++ Redistributable, and copy its vcruntime140.dll and msvcp140.dll over"
                " those next to python.exe, if there are any; then take the triton-windows for your PyTorch.",
                "winget install Microsoft.VCRedist.2015+.x64",
                first_for=("importing libtriton",),
            ),
            Fix("Or do without compilation.", "TORCHDYNAMO_DISABLE=1 python train.py"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TRITON, "https://github.com/woct0rdho/triton-windows"),
        said_by="torch 2.6-2.13, Triton 2.0-3.6",
    ),
    KnownError(
        id="numpy-missing",
        section=SECTION,
        title="NumPy is missing or incompatible",
        summary="A package finds no NumPy, or was built for another generation of NumPy than the one in use.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("Numpy is not available", r"rror: ?Numpy is not available"),
            literal("Could not infer dtype of numpy."),
            literal("A module that was compiled using NumPy 1.x cannot be run in"),
            Pattern(
                "numpy.dtype size changed, may indicate",
                r"numpy\.dtype size changed, may indicate binary incompatibility",
            ),
            Pattern("Failed to initialize NumPy: ", r"Failed to initialize NumPy: (?!No module named)"),
            literal("Unable to configure default ndarray.__repr__"),
            Pattern(
                "module compiled against ABI version",
                r"module compiled against ABI version (?P<required>0x[\da-f]{1,8}) but this version of numpy is"
                r" (?P<version>0x[\da-f]{1,8})",
            ),
            Pattern("AttributeError: _ARRAY_API not found", r"AttributeError: _ARRAY_API not found"),
            literal("expected np.ndarray (got numpy.ndarray)"),
            Pattern(
                "module was compiled against NumPy C-API",
                r"module was compiled against NumPy C-API version (?P<required>0x[\da-f]{1,4})",
            ),
            Pattern("Numba needs NumPy", r"Numba needs NumPy (?P<newest>[\d.]{1,8}) or less"),
            Pattern("core.multiarray failed to import", r"numpy\.(?:_)?core\.multiarray failed to import"),
            literal("initialization of _internal failed without raising an exception"),
            Pattern("module compiled against A", r"module compiled against A[BP]I version 0x(?P<built>\w{1,8})"),
        ),
        causes=(
            "PyTorch before 2.3 and other compiled packages do not support NumPy 2.",
            "NumPy is not installed.",
            "Numba supports only versions of NumPy that are older than it; _internal is a part of Numba.",
            "Expected 96, got 88: the package is built for NumPy 2, and the process has loaded NumPy 1.",
        ),
        fixes=(
            Fix("For PyTorch before 2.3, install NumPy 1.", "pip install 'numpy<2'"),
            Fix(
                "Otherwise upgrade the package that the traceback names, or install NumPy.",
                "pip install --upgrade numpy torch",
            ),
            Fix(
                "If 88 is got, install NumPy 2, then restart the notebook or the program.",
                "pip install --upgrade 'numpy>=2'",
                first_for=("got 88",),
            ),
            Fix(
                "For Numba, install the two together, so that pip chooses a NumPy that Numba supports.",
                "pip install --upgrade numba numpy",
                first_for=("_internal failed", "Numba needs"),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://numpy.org/doc/stable/numpy_2_0_migration_guide.html",
            "https://github.com/pytorch/pytorch/issues/107302",
        ),
        said_by="torch 1.13-2.13, ONNX Runtime 1.23, NumPy 2.0",
    ),
    KnownError(
        id="cudnn-too-old",
        section=SECTION,
        title="cuDNN of this PyTorch is too old for the server",
        summary="PyTorch 2.9.1 has a fault in Conv3d with a cuDNN before 9.15, so SGLang refuses to start.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(literal("CuDNN Compatibility Issue Detected"),),
        causes=("PyTorch 2.9.1 requires cuDNN 9.10 or 9.13, which pip installed with it.",),
        fixes=(
            Fix(
                "Install a newer cuDNN, whatever pip says about PyTorch's requirement; for CUDA 13, nvidia-cudnn-cu13.",
                "pip install nvidia-cudnn-cu12==9.16.0.29",
            ),
            Fix(
                "For a model of text only, which has no Conv3d, skip the check.",
                "SGLANG_DISABLE_CUDNN_CHECK=1 python -m sglang.launch_server --model-path MODEL",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/pytorch/pytorch/issues/166643",
            "https://github.com/gpustack/gpustack/issues/4407",
        ),
        said_by="SGLang 0.5",
    ),
    KnownError(
        id="torchaudio-removed",
        section=SECTION,
        title="Function was removed from torchaudio or torchvision",
        summary="The program calls a function that the installed torchaudio or torchvision no longer has, or not yet.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "' has no attribute '",
                r"(?<!initialized )module '(?P<package>torchaudio|torchvision)(?P<module>(?:\.\w{1,30}){0,4})' has no"
                r" attribute '(?P<attribute>\w{1,60})'",
            ),
        ),
        causes=(
            "torchaudio 2.9 removed list_audio_backends, info, AudioMetaData, set_audio_backend, io and sox_effects.",
            "torchvision 0.17 removed transforms.functional_tensor; its reading of videos has moved to TorchCodec.",
            "A package such as pyannote.audio, speechbrain or silero-vad is older than torchaudio.",
        ),
        fixes=(
            Fix(
                "Upgrade the package whose file the last lines of the traceback name.", "pip install --upgrade PACKAGE"
            ),
            Fix(
                "Or install the last versions with the function; for torchaudio, the three packages of PyTorch 2.8.",
                "pip install torch==2.8.0 torchvision==0.23.0 torchaudio==2.8.0"
                " --index-url https://download.pytorch.org/whl/cu128",
                first_for=("'torchaudio",),
            ),
            Fix("In your own code, use soundfile or TorchCodec.", "samples, rate = soundfile.read(path)"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/pytorch/audio/issues/3902", "https://github.com/snakers4/silero-vad/issues/715"),
        said_by="torchaudio 2.1-2.10, torchvision 0.17-0.25",
    ),
    KnownError(
        id="dgl-mismatch",
        section=SECTION,
        title="DGL does not match PyTorch",
        summary="DGL contains a library for each version of PyTorch, and has none for the installed one.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Cannot find DGL C++ ",
                r"Cannot find DGL C\+\+ (?P<part>\w{1,20}) library at (?P<path>[^\n]{1,200})",
            ),
            literal("Cannot load Graphbolt C++ library"),
            Pattern(
                "libtensoradapter_pytorch_",
                r"TensorDispatcher: dlopen failed: [^\s:]{0,200}libtensoradapter_pytorch_(?P<torch>[\d.]{1,12}\d)\.so",
            ),
        ),
        causes=("PyTorch is newer than DGL, whose last wheels are for PyTorch 2.4.",),
        fixes=(
            Fix(
                "Install PyTorch 2.4 and the DGL for it.",
                "pip install torch==2.4.0 && pip install --force-reinstall --no-deps dgl"
                " -f https://data.dgl.ai/wheels/torch-2.4/cu124/repo.html",
            ),
            Fix(
                "Or port the model to PyTorch Geometric, which follows the versions of PyTorch.",
                "pip install torch-geometric",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://www.dgl.ai/pages/start.html",),
        said_by="DGL 2.1-2.4",
    ),
    KnownError(
        id="numpy-absent",
        section=SECTION,
        title="PyTorch runs without NumPy",
        summary="PyTorch found no NumPy; it continues, and only conversions from and to NumPy will fail.",
        context=ContextState.ALIVE,
        patterns=(Pattern("Failed to initialize NumPy: ", r"Failed to initialize NumPy: No module named '\w{1,40}"),),
        causes=(
            "NumPy is not installed in this environment.",
            "pip builds a package in a separate environment, in which NumPy is not needed.",
        ),
        fixes=(Fix("Install NumPy; while pip builds a package, ignore the warning.", "python -m pip install numpy"),),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/pytorch/pytorch/blob/main/torch/csrc/utils/tensor_numpy.cpp",),
        said_by="torch 1.13-2.13",
        is_echo=True,
        is_warning=True,
    ),
    KnownError(
        id="kaolin-placeholder",
        section=SECTION,
        title="Kaolin from PyPI is only a placeholder",
        summary="The package of this name on PyPI is empty: the wheels with CUDA are on a server of NVIDIA.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(Pattern("kaolin placeholder wheel", r"This is the kaolin placeholder wheel"),),
        causes=("pip installed kaolin without the address of its wheels.",),
        fixes=(
            Fix(
                "Install the wheel for your PyTorch and CUDA from nvidia-kaolin.s3.us-east-2.amazonaws.com, which lists"
                " for which there is one.",
                "pip uninstall -y kaolin; pip install kaolin -f https://nvidia-kaolin.s3.us-east-2.amazonaws.com/"
                "torch-$(python -c \"import torch; print(torch.__version__.replace('+', '_'))\").html",
            ),
            Fix("Or install it with conda.", "conda install -c conda-forge kaolin"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://kaolin.readthedocs.io/en/latest/notes/installation.html",),
        said_by="kaolin 0.1 of PyPI",
    ),
)
