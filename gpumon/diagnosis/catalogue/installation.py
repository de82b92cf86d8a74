"""Errors of pip, uv and conda, which install PyTorch and its companions."""

from typing import Final

from gpumon.diagnosis.catalogue import sources
from gpumon.diagnosis.catalogue.packages import SECTION
from gpumon.diagnosis.catalogue.toolchain import BUILD_TOOLS, EXTENSIONS
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_RESOLUTION: Final = "https://pip.pypa.io/en/stable/topics/dependency-resolution/"

_PACKAGES: Final = (
    r"(?:torch|triton|xformers|flash|vllm|sglang|numpy|transformers|tokenizers|accelerate|peft|trl|deepspeed"
    r"|bitsandbytes"
    r"|nvidia-|cuda-|cupy|tensorrt|tensorflow|jax|onnxruntime|lightning|pytorch|diffusers|auto|gptq|unsloth|fsspec)"
)
"""How the names of packages begin that PyTorch programs install."""

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="install-conflict",
        section=SECTION,
        title="Installed packages contradict each other",
        summary="pip changed a package to a version that another installed package does not accept.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "which is incompatible",
                r"(?P<package>(?<![\w.-])[\w.-]{2,40}) \S{1,40} requires"
                r" (?P<required>(?!nvidia-)[\w.-]{1,40}(?:\[[\w,-]{1,30}\])?[^\n]{0,160}?), but you have"
                rf" (?P<installed>(?!nvidia-){_PACKAGES}[\w.-]{{0,40}} [\w.+-]{{1,40}}) which is incompatible",
            ),
            Pattern(
                ", which is not installed.",
                rf"(?P<package>[\w.-]{{2,40}}) \S{{1,40}} requires (?P<required>{_PACKAGES}[^\n]{{0,200}}?), which"
                r" is not"
                r" installed\.",
            ),
        ),
        causes=("The packages were installed in separate commands; the last one replaced what an earlier one needs.",),
        fixes=(
            Fix(
                "Name all packages in one command, so that pip finds versions that fit.",
                "pip install torch torchvision torchaudio PACKAGE",
            ),
            Fix(
                "Keep the PyTorch that is installed.",
                "pip freeze | grep -E '^torch' > keep.txt; pip install -c keep.txt PACKAGE",
            ),
            Fix("List all contradictions; those of packages that you do not use are harmless.", "python -m pip check"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_RESOLUTION,),
        said_by="pip 20-25",
        is_warning=True,
    ),
    KnownError(
        id="install-not-found",
        section=SECTION,
        title="pip finds no such version",
        summary="The index has no wheel of this version for this Python and system.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Could not find a version that satisfies",
                rf"Could not find a version that satisfies the requirement (?P<package>{_PACKAGES}[\w.-]{{0,30}})"
                r"(?:[=~]=(?P<version>[\w.+]{1,30}))?(?:[^\n]{0,60}?\(from versions: (?P<oldest>[\w.+]{1,24})"
                r"(?:[\w.+, ]{0,220}, (?P<newest>[\w.+]{1,24})\))?)?",
            ),
            Pattern(
                "No matching distribution found for ",
                r"No matching distribution found for"
                r" (?P<package>torch(?:text|data|codec)|pytorch|numpy|transformers)"
                r"(?P<version>[=<>!~]{1,3}[\w.]{0,20})?(?![\w=<>!~+.-])",
            ),
        ),
        causes=(
            "This Python is newer or older than those for which the version has wheels.",
            "The version is only in another index, such as PyTorch's for a CUDA version.",
            "There is no wheel for this system: Windows, macOS or ARM; or the network hides the index.",
        ),
        fixes=(
            Fix(
                "Check the version of Python and the system.",
                "python -c 'import sys, platform; print(sys.version, platform.machine())'",
            ),
            Fix("Create an environment with an older Python.", "conda create -n fresh python=3.11"),
            Fix(
                "Install PyTorch from its own index, in a version that it has.",
                "pip install torch torchvision --index-url https://download.pytorch.org/whl/cu130",
                first_for=("+cu",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.PYTORCH_INSTALL,),
        said_by="pip 9-25",
        is_echo=True,
    ),
    KnownError(
        id="install-build",
        section=SECTION,
        title="Package could not be built",
        summary="There is no wheel for this Python and system, so that pip built the package from source, and failed.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("error: subprocess-exited-with-error"),
            literal("error: metadata-generation-failed"),
            literal("Getting requirements to build wheel did not run successfully"),
            literal("Preparing metadata (pyproject.toml) did not run successfully"),
            literal("python setup.py egg_info did not run successfully"),
            Pattern("Failed to build `", rf"Failed to build `(?P<package>(?!{EXTENSIONS})[\w.@ =-]{{2,60}})`"),
            literal("error: legacy-install-failure"),
            Pattern(
                "Failed to build installable wheels",
                r"Failed to build installable wheels for some pyproject\.toml based projects",
            ),
            Pattern("The build backend returned an error", r"The build backend returned an error"),
            Pattern(
                "when getting requirements to build wheel",
                r"Failed to build '(?P<package>[^'\n]{1,120})' when getting requirements to build wheel",
            ),
            Pattern(
                "finished with status 'error'",
                rf"Building (?:wheel|editable) for (?P<package>(?!{EXTENSIONS})[\w.-]{{1,60}})"
                rf" \([\w.]{{1,20}}\): finished with"
                r" status 'error'",
            ),
            Pattern(
                "Failed building wheel for",
                rf"Failed building wheel for (?P<package>(?!{EXTENSIONS})[\w.-]{{1,60}})",
            ),
            Pattern(
                "did not complete successfully: exit code",
                r"failed to solve: process \"[^\n\"]{1,80}?pip3? install [^\n\"]{0,80}?\b(?P<package>flash-attn|apex"
                r"|mamba-ssm|causal-conv1d|xformers|vllm|deepspeed)\b[^\n\"]{0,120}\""
                r" did not complete successfully: exit code",
            ),
            Pattern("CondaEnvException: Pip failed", r"CondaEnvException: Pip failed"),
            Pattern(
                "Build backend failed to ",
                r"Build backend failed to (?:build (?:wheel|sdist)|determine (?:extra requires|requirements|metadata))",
            ),
            Pattern(
                "Failed to download and build `",
                rf"Failed to download and build"
                rf" `(?P<package>(?!{EXTENSIONS})[^`\n]{{2,80}})`",
            ),
            Pattern(
                "` failed (exit ",
                r"Call to `(?P<backend>[\w.:-]{2,60})\.(?:build_wheel|build_editable|get_requires_for_build_wheel"
                r"|prepare_metadata_for_build_wheel)` failed \(exit (?:status|code): \d{1,10}\)",
            ),
        ),
        causes=(
            "The reason stands above, between the lines of output of the build.",
            "The package was never built for this Python: an old version, or a Python that is too new.",
            "The build needs torch, a compiler or the CUDA toolkit, which pip's isolated environment does not have.",
        ),
        fixes=(
            Fix(
                "On Windows, the compiler was not found: install the CUDA toolkit and the Build Tools, and start"
                " from the"
                " terminal `x64 Native Tools`.",
                first_for=("Windows build",),
            ),
            Fix("Read the error above this line: it names what is missing."),
            Fix(
                "Install a version that has a wheel, or use an older Python.", "pip install --only-binary :all: PACKAGE"
            ),
            Fix("Let the build see the installed PyTorch.", "pip install --no-build-isolation PACKAGE"),
            Fix(
                "The package has CUDA code: install PyTorch first, and build with it and with a toolkit of its CUDA"
                " version; or take a wheel for both from the releases of the package.",
                "pip install ninja setuptools wheel && nvcc --version && pip install --no-build-isolation PACKAGE",
                first_for=("CUDA extension",),
                hidden_otherwise=True,
            ),
            Fix(
                "There are wheels of mmcv only up to PyTorch 2.4: take one with mim, or build it with the installed"
                " PyTorch and a setuptools that still has pkg_resources.",
                "pip install 'setuptools<81' wheel ninja && pip install --no-build-isolation mmcv",
                first_for=("mmcv build",),
                hidden_otherwise=True,
            ),
            Fix("Install a compiler and the headers of Python.", "sudo apt-get install -y build-essential python3-dev"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://pip.pypa.io/en/stable/reference/build-system/",),
        said_by="pip 21-25, uv 0.4-0.9, conda 23-25",
        is_echo=True,
    ),
    KnownError(
        id="c-compiler-missing",
        section=SECTION,
        title="pip needs a compiler",
        summary="pip builds a package from source, and the compiler is missing or fails.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "error: command '",
                r"error: command"
                r" '(?:[^'\n]{0,200}[\\/])?(?P<compiler>gcc|g\+\+|cc|c\+\+|clang|clang\+\+|x86_64[\w-]{1,40}|cl|"
                r"cl\.exe)"
                r"' failed(?: with exit|: )",
            ),
            Pattern(
                "']' returned non-zero",
                r"Command '\['(?:which|where)', '(?P<compiler>g\+\+|gcc|c\+\+|cl|clang\+\+|nvcc)'\]' returned non-zero",
            ),
        ),
        causes=(
            "There is no wheel of this package for this Python.",
            "The image has no compiler, or on Windows the Build Tools with C++ are missing.",
        ),
        fixes=(
            Fix(
                "Install a version that has a wheel, or use an older Python.", "pip install --only-binary :all: PACKAGE"
            ),
            Fix(
                "On Linux, install a compiler and the headers of Python.",
                "sudo apt-get install -y build-essential python3-dev",
            ),
            Fix(
                "On Windows, install the Build Tools with C++, and open a new terminal.",
                BUILD_TOOLS,
                first_for=("cl.exe", "Microsoft Visual"),
            ),
            Fix("If the compiler runs and fails, read its first `error:` above."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://packaging.python.org/en/latest/guides/packaging-binary-extensions/",),
        said_by="setuptools 40-82, torch 1.13-2.13",
    ),
    KnownError(
        id="build-dependency",
        section=SECTION,
        title="Build of a package lacks a module",
        summary="The package needs a module while it is built, which its own description does not name.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "declare it as a build dependency",
                r"depends on `?(?P<module>[\w.-]{2,40})`?,? but does(?:n't| not) declare it as a build dependency",
            ),
        ),
        causes=("The build runs in a separate environment, which has only what the package names.",),
        fixes=(
            Fix(
                "Install the module first, then build the package in the same environment.",
                "uv pip install torch setuptools wheel ninja && uv pip install --no-build-isolation PACKAGE",
            ),
            Fix(
                "In a project, name it for the package in `[tool.uv.extra-build-dependencies]`, with `match-runtime`"
                " for"
                " torch."
            ),
            Fix("Or install a wheel that is already built.", "uv pip install --only-binary :all: PACKAGE"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.astral.sh/uv/concepts/projects/config/",),
        said_by="uv 0.4-0.9",
    ),
)
