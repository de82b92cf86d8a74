"""Errors of packages whose parts do not fit together: conflicts, libraries, sources and signatures."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes
from gpumon.diagnosis.catalogue.packages import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="package-conflict",
        section=SECTION,
        title="Packages require different versions of a CUDA library",
        summary="pip installed a version of a CUDA library that another package, such as PyTorch, does not accept.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "which is incompatible",
                r"(?P<package>(?<![\w.-])[\w.-]{2,40}) \S{1,40} requires"
                r" (?P<required>nvidia-[\w-]{1,30}[^\n]{0,160}?), but you have"
                r" (?P<installed>nvidia-[\w.-]{2,40} [\w.+-]{1,30}) which is incompatible",
            ),
        ),
        causes=("One package was installed or upgraded later than the other, in a separate command.",),
        fixes=(
            Fix(
                "Name the packages in one command, so that pip finds versions that fit.",
                "pip install --upgrade torch PACKAGE",
            ),
            Fix("Or give each program its own environment.", "python3 -m venv fresh && fresh/bin/pip install PACKAGE"),
            Fix("List all conflicts.", "python -m pip check"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://pip.pypa.io/en/stable/topics/dependency-resolution/",),
        said_by="pip 20-25",
        is_warning=True,
    ),
    KnownError(
        id="dll-load",
        section=SECTION,
        title="Windows could not load a library",
        summary="A compiled module of a package, or a DLL that it needs, is missing or does not fit.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "DLL load failed",
                r"(?:ImportError: )?DLL load failed while importing (?P<module>(?!libtriton|flash_attn_2)\w{1,60})"
                r"|ImportError: DLL load failed\b(?!\w| while importing )",
            ),
            Pattern(
                "Error: [WinError 1",
                r"Error: \[WinError (?P<code>126|127|193|1114)\] (?![^\n]{1,200}?Error loading"
                r" [^\n]{1,200}\.dll)[^\n]{1,100}",
            ),
            Pattern(
                "Error loading ",
                r"\[WinError (?P<code>126|127|182|193|1114)\] [^\n]{1,200}?Error loading"
                r" \"?(?P<library>[^\"\n]{1,200}\.dll)",
            ),
            Pattern(
                "Could not find module '",
                r"Could not find module '(?P<library>(?!nvrtc64)"
                r"(?![^'\n]{0,200}(?:llama|ggml|bitsandbytes_)\w{0,12}\.dll)[^'\n]{1,200}\.dll)'"
                r" \(or one of its dependencies\)",
            ),
        ),
        causes=(
            "The Visual C++ Redistributable is missing or old.",
            (
                "If it is a process that the program started, such as a worker: the program itself loaded the library,"
                " so that the host's memory, with the paging file, is full."
            ),
            "The package was built for another version of Python, PyTorch or CUDA.",
            "A DLL of CUDA or of another package is not on the search path, or an antivirus program removed it.",
            "If the file is fbgemm.dll: PyTorch 2.4.0 needs a library of OpenMP that Windows does not have.",
        ),
        fixes=(
            Fix(
                "If the program itself could load the library, memory ran out: start fewer workers, each of which loads"
                " the libraries of CUDA again (`workers=0` for Ultralytics), then let Windows manage the size of the"
                " paging file, or enlarge it.",
                "loader = DataLoader(dataset, num_workers=0)",
                first_for=("started process",),
            ),
            Fix("Install the current Visual C++ Redistributable.", "winget install Microsoft.VCRedist.2015+.x64"),
            Fix(
                "Install the package again, together with the PyTorch for which it is built.",
                "pip install --force-reinstall torch torchvision torchaudio"
                " --index-url https://download.pytorch.org/whl/cu130",
                first_for=("WinError 127", "procedure could not be found"),
            ),
            Fix(
                "Triton compiled this module when it was first used: delete the folder `.triton\\cache` in your user"
                " folder, and take the triton-windows that belongs to your PyTorch; python.exe must be that of the"
                " environment.",
                "pip install --upgrade --force-reinstall --no-deps triton-windows",
                first_for=("importing cuda_utils", "importing __triton_launcher"),
                hidden_otherwise=True,
            ),
            Fix("Install PyTorch and the package in a new environment, without other versions of CUDA on PATH."),
            Fix("Upgrade PyTorch to 2.4.1 or later.", "pip install --upgrade torch", first_for=("fbgemm.dll",)),
            Fix(
                "For mmcv, remove the installed one, and install the build for your PyTorch and CUDA; if there is none,"
                " first install a PyTorch that has one, up to 2.4 (2.1 for mmcv 2.1).",
                "pip uninstall -y mmcv mmcv-full\npip install -U openmim\nmim install mmcv",
                first_for=("importing _ext",),
            ),
            Fix(
                "Delete the folder of extensions that were compiled when first used, such as"
                " `%LOCALAPPDATA%\\torch_extensions`, so that they are compiled for this PyTorch, and put the toolkit's"
                " bin folder on PATH.",
                first_for=("_plugin",),
            ),
            Fix("Show which DLL is missing, with the program Dependencies, on the file that could not be loaded."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.SHOW_VERSIONS,),
        sources=(
            "https://github.com/pytorch/pytorch/issues/125109",
            "https://github.com/pytorch/pytorch/issues/4518",
        ),
        said_by="Python 3.6-3.13, torch 0.4-2.9",
    ),
    KnownError(
        id="mkl-symbol",
        section=SECTION,
        title="Library of Intel MKL does not fit PyTorch",
        summary="PyTorch's CPU library needs a function that the loaded version of Intel MKL does not have.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("undefined symbol: iJIT", r"undefined symbol: (?P<symbol>iJIT_\w{1,40})"),
            Pattern("undefined symbol: mkl_", r"undefined symbol: (?P<symbol>mkl_\w{1,60})"),
            Pattern("Intel MKL FATAL ERROR", r"Intel MKL FATAL ERROR: (?P<reason>[^\n]{1,80})"),
        ),
        causes=(
            "MKL 2024.1 or later was installed by conda together with an older PyTorch.",
            "Two versions of MKL are mixed.",
        ),
        fixes=(
            Fix("In a conda environment with an older PyTorch, install MKL 2024.0.", 'conda install "mkl<2024.1"'),
            Fix("Or install the wheel of PyTorch, which includes MKL.", "pip install --force-reinstall torch"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/pytorch/pytorch/issues/123097",),
        said_by="torch 1.12-2.3",
    ),
    KnownError(
        id="kernel-signature",
        section=SECTION,
        title="Compiled kernels and Python code are of different versions",
        summary="The Python part of a package calls a compiled function that has other arguments, or is not there.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "argument(s) but received ",
                r"(?P<function>\w{1,300}::\w{1,80})\(\) expected at most (?P<expected>\d{1,3}) argument\(s\) but rece"
                r"ived (?P<got>\d{1,3})",
            ),
            Pattern(
                "is missing value for argument '",
                r"(?P<function>\w{1,300}::\w{1,80})\(\) is missing value for argument '(?P<argument>\w{1,60})'",
            ),
            Pattern(
                "The following argument types are supported:",
                r"(?<!\w)(?P<function>(?!gem[mv]|causal_conv1d)\w{0,60}(?:cuda|fwd|bwd|forward|backward|_gpu|gemm|ker"
                r"nel)\w{0,30})\(\): incompatible"
                r" function arguments\. The following argument types are supported:",
            ),
            Pattern(
                "argument(s) but received ",
                r"RuntimeError: (?P<function>\w{1,60})\(\) expected at most (?P<expected>\d{1,3}) argument\(s\)"
                r" but received (?P<got>\d{1,3})",
            ),
            Pattern(
                " has no attribute ",
                r"\bmodule ['\"](?P<module>(?!torch\b)[\w.]{1,60}(?:csrc|_C|_cuda|_kernels?|_ext))['\"] has no"
                r" attribute ['\"]?(?P<function>\w{1,60})",
            ),
        ),
        causes=(
            "Only one part was upgraded: the Python package, or the package with its kernels.",
            "The cache holds kernels that an older version compiled.",
            "Files of an older installation are left in the folder of the package.",
        ),
        fixes=(
            Fix(
                "Install the package and its kernels again in versions that belong together.",
                "pip install --force-reinstall --no-deps --no-cache-dir PACKAGE",
            ),
            Fix(
                "Delete the caches of compiled kernels.",
                "rm -rf ~/.cache/flashinfer ~/.cache/torch_extensions ~/.triton/cache",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/sgl-project/sglang/issues/5022",),
        said_by="torch 2.0-2.13",
    ),
    KnownError(
        id="torchcodec-load",
        section=SECTION,
        title="TorchCodec could not be loaded",
        summary=(
            "TorchCodec found no FFmpeg whose libraries it can load, or it was built for another PyTorch or another"
            " CUDA."
        ),
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("Could not load libtorchcodec"),
            Pattern(
                "The PyTorch version (",
                r"The PyTorch version \((?P<torch>2\.\d{1,2}\.[\w+.]{1,20})\) is not compatible with",
            ),
            Pattern(
                "libtorchcodec_core",
                r"Could not load this library: (?P<library>[^\n]{0,200}libtorchcodec_core\d\.\w{2,5})",
            ),
            Pattern("Could not run 'torchcodec_ns::", r"Could not run 'torchcodec_ns::(?P<function>\w{1,60})'"),
            Pattern("TorchCodec is required for ", r"TorchCodec is required for (?P<function>\w{1,60})"),
            Pattern(
                "libtorchcodec_core",
                r"not found in DLL: [^\n]{1,200}?(?P<library>libtorchcodec_core\d\.dll)",
            ),
        ),
        causes=(
            "No FFmpeg with shared libraries is installed; a static ffmpeg program has none.",
            "The version of TorchCodec does not belong to that of PyTorch.",
            "The build for CUDA needs libnvrtc and libnppicc, which are not found.",
        ),
        fixes=(
            Fix("Install FFmpeg with its shared libraries.", 'conda install "ffmpeg<8" -c conda-forge'),
            Fix(
                "Install PyTorch and TorchCodec together, from the same index: these versions do not belong together.",
                "pip install --upgrade torch torchvision torchaudio torchcodec"
                " --index-url https://download.pytorch.org/whl/cu130",
            ),
            Fix("On Windows, install the full-shared build of FFmpeg, and add its folder to PATH."),
            Fix(
                "Show which library is missing.",
                "cd \"$(python -c 'import site; print(site.getsitepackages()[0])')\" && ldd"
                " torchcodec/libtorchcodec_core7.so | grep 'not found'",
            ),
            Fix(
                "Install TorchCodec, in the version for this PyTorch.",
                "pip install --upgrade torchcodec",
                first_for=("TorchCodec is required for", "not found in DLL"),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/meta-pytorch/torchcodec/issues/730",
            "https://github.com/meta-pytorch/torchcodec/issues/1257",
        ),
        said_by="TorchCodec 0.1-0.12, torchaudio 2.8-2.10",
    ),
    KnownError(
        id="sources-missing",
        section=SECTION,
        title="Sources of a dependency are missing",
        summary="The build needs files of another project, which is a submodule that was not cloned.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "missing and no known rule to make it",
                r"ninja: error: '(?P<file>[^'\n]{1,180})', needed by [^\n]{1,180}, missing and no known rule to make "
                r"it",
            ),
            Pattern(
                "fatal error: ",
                r"fatal error: (?P<file>(?:cutlass|cute|glm|fmt|third_party|composable_kernel|cub|thrust|pybind11|tin"
                r"y-cuda-nn)/[\w./-]{1,80}): No such file",
            ),
            Pattern(
                "is not installable. Neither 'setup.py' nor",
                r"Directory '(?P<file>[^'\n]{1,160})' is not installable\. Neither 'setup\.py' nor",
            ),
        ),
        causes=(
            "The repository was cloned without --recursive, or downloaded as a ZIP file, which has no submodules.",
        ),
        fixes=(
            Fix("Fetch the submodules, then build again.", "git submodule update --init --recursive"),
            Fix(
                "If a header of the toolkit is missing, such as cub or thrust, install the complete toolkit.",
                "nvcc --version",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/NVlabs/tiny-cuda-nn/issues/379",),
        said_by="ninja 1.10-1.12, GCC, Clang",
    ),
    KnownError(
        id="capability-required",
        section=SECTION,
        title="Function needs a newer GPU",
        summary="The function has no code for the compute capability of this GPU.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "compute capability",
                r"(?P<feature>(?!scaled_mm|Bfloat16)\b[A-Z]\w{1,24}) (?:is|are) only supported on (?:GPUs?|devices?) "
                r"with comp"
                r"ute capability"
                r" ?(?:>=|of at least|at least)? ?(?P<required>[\d.]{1,5})(?!\d)",
            ),
            Pattern("only supports Hopper", r"(?P<feature>[\w-]{2,40}) only supports Hopper"),
            Pattern("only supports Blackwell", r"(?P<feature>[\w-]{2,40}) only supports Blackwell"),
            Pattern(
                "requires SM",
                r"(?P<feature>\b[A-Z]\w{2,30}) requires SM ?(?P<required>\d{2,3})(?: or (?:newer|higher|above)|\+)",
            ),
            Pattern(
                "Only SM ",
                r"Error: Only (?P<feature>SM) (?P<required>\d{1,2}\.x)(?: and \d{1,2}\.x)? (?:is|are) supported",
            ),
        ),
        causes=("The GPU is older than the function, or the program did not choose a function for this GPU.",),
        fixes=(
            Fix("Show the compute capability of the GPU.", "nvidia-smi --query-gpu=name,compute_cap --format=csv"),
            Fix(
                "Choose another attention, in vLLM for example that of Triton.",
                "vllm serve MODEL --attention-backend TRITON_ATTN",
            ),
            Fix(
                "In a model of transformers, use PyTorch's attention.",
                'model = Model.from_pretrained(NAME, attn_implementation="sdpa")',
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/vllm-project/vllm/issues/52181", "https://developer.nvidia.com/cuda-gpus"),
        said_by="vLLM 0.9-0.19",
    ),
    KnownError(
        id="import-chain",
        section=SECTION,
        title="A library could not import a part of itself",
        summary="An import failed inside of the library; the text behind the message, and the traceback above it, name"
        " the package that is the cause.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "because of the following error (look up to see its traceback)",
                r"Failed to import (?P<module>(?!transformers\.integrations\.bitsandbytes)[\w.]{1,120}) because of the"
                r" following error \(look up to see its traceback\)",
            ),
        ),
        causes=(
            "A package that the library uses is missing, or was built for another version of PyTorch.",
            "PyTorch, transformers, torchvision, flash-attn or NumPy were upgraded one without the others.",
        ),
        fixes=(
            Fix("Import the package that the last line names, to see its own error.", "python -c 'import torchvision'"),
            Fix("Show the packages that do not fit together.", "pip check"),
            Fix(
                "Install PyTorch and its companions together in a fresh environment.",
                "pip install torch torchvision torchaudio --index-url https://download.pytorch.org/whl/cu130",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/huggingface/transformers/blob/main/src/transformers/utils/import_utils.py",),
        said_by="transformers 4.20-5.0, diffusers 0.20-0.36",
        is_echo=True,
    ),
)
