"""Errors of installers of Python packages that find no set of versions: uv, pip, conda and mamba."""

from typing import Final

from gpumon.diagnosis.catalogue import sources
from gpumon.diagnosis.catalogue.wording import NO_CONTEXT_YET, literal, name
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Installers of packages"

_UV_TORCH: Final = "https://docs.astral.sh/uv/guides/integration/pytorch/"
_CONDA_CUDA: Final = "https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-virtual.html"
_PIP: Final = "https://pip.pypa.io/en/stable/topics/dependency-resolution/"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="uv-no-solution",
        section=SECTION,
        title="uv finds no set of versions",
        summary="No set of versions meets all requirements for each Python version and system of the project.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("No solution found when resolving dependencies"),
            literal(
                "can't be installed because it doesn't have a source distribution or wheel for the current platform"
            ),
            Pattern(
                "no wheels with a matching",
                r"(?P<package>[\w.-]{2,40}(?:==\S{1,40})?) has no wheels with a matching"
                r" (?P<tag>Python implementation tag|Python ABI tag|Python version tag|platform tag(?: \(e\.g\.,"
                r" `\w{1,40}`\))?)",
            ),
            Pattern(
                "was found on https://download.pytorch.org/",
                r"was found on https://download\.pytorch\.org/\S{1,60}, but not at the requested version",
            ),
            Pattern(
                " with neither wheels nor source distribution",
                r"found distribution (?P<package>[\w.-]{2,40}==\S{1,40}) @ [^\n]{1,120}? with neither wheels nor"
                r" source distribution",
            ),
            Pattern(
                "hint: The resolution failed for an environment",
                r"hint: The resolution failed for an (?P<other>environment that is not the current one)",
            ),
            Pattern(
                "only has wheels for the following",
                r"`(?P<package>[\w.-]{2,40})` \(v?[\w.+]{1,30}\) only has wheels for the following platforms?:"
                r" (?P<platforms>[^\n]{1,120})",
            ),
        ),
        causes=(
            "The package has no wheel for this Python version or system, as PyTorch for a Python that is too new.",
            "The index of PyTorch is not set up: builds such as +cu128 are not on PyPI.",
            "By default, uv takes each package from the first index that has it, and that one has other versions.",
            "The setting `requires-python` includes versions of Python for which a package does not exist.",
        ),
        fixes=(
            Fix("Use a Python version that the package supports, for example 3.12.", "uv venv --python 3.12"),
            Fix(
                "The failure is not about this host: limit `tool.uv.environments` in pyproject.toml to your system; or"
                " name extras that exclude each other in `tool.uv.conflicts`.",
                first_for=("that is not the current one",),
                hidden_otherwise=True,
            ),
            Fix(
                "Let uv choose the index of PyTorch for this GPU's driver.",
                "uv pip install torch torchvision --torch-backend=auto",
            ),
            Fix(
                "In a project, add PyTorch's index to `[[tool.uv.index]]`, and name it for torch in"
                " `[tool.uv.sources]`."
            ),
            Fix("Limit `requires-python` and the systems of the project, for example `>=3.11,<3.14`."),
            Fix(
                "If the versions are on several indexes, let uv compare them.",
                "uv pip install --index-strategy unsafe-best-match torch",
                first_for=("was found on",),
            ),
            Fix(
                "Resolve the lock file again for this system; name the index of PyTorch, or a version with its wheels.",
                "uv lock --upgrade-package torch && uv sync",
                first_for=("for the current platform", "only has wheels", "neither wheels"),
            ),
            Fix(
                "On a Mac with an Intel CPU, use PyTorch 2.2, the last version with wheels for it.",
                "uv pip install 'torch==2.2.2' 'numpy<2'",
                first_for=("_0_x86_64`",),
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(_UV_TORCH, "https://docs.astral.sh/uv/concepts/indexes/"),
        said_by="uv 0.1-0.12",
    ),
    KnownError(
        id="download-timeout",
        section=SECTION,
        title="Download of a package took too long",
        summary="A large wheel, as those of PyTorch and CUDA, was not downloaded in time.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "due to network timeout. Try increasing UV_HTTP_TIMEOUT",
                r"due to network timeout\. Try increasing UV_HTTP_TIMEOUT",
            ),
            Pattern(
                "ReadTimeoutError",
                r"ReadTimeoutError: HTTPS?ConnectionPool\(host='(?P<host>(?:files\.pythonhosted|download\.pytorch"
                r"|pypi\.nvidia)\.\w{2,5}|[\w.]{0,20}pypi[\w.]{0,20})'",
            ),
            Pattern("DO NOT MATCH THE HASHES", r"THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE"),
            Pattern("CondaHTTPError", r"CondaHTTPError: HTTP (?P<status>\d{3}) [^\n]{0,60}"),
            Pattern(
                "in _error_catcher", r"pip[\\/]_vendor[\\/]urllib3[\\/]response\.py\", line \d{1,5}, in _error_catcher"
            ),
        ),
        causes=("The connection is slow, or a proxy or firewall cuts it.", "The file in the cache is incomplete."),
        fixes=(
            Fix("With uv, wait longer.", "UV_HTTP_TIMEOUT=600 uv sync"),
            Fix(
                "With pip, wait longer and forget incomplete files.",
                "pip cache purge && pip install --timeout 600 --retries 10 torch",
                first_for=("pip._vendor", "HASHES"),
            ),
            Fix(
                "With conda, wait longer.",
                "conda config --set remote_read_timeout_secs 600 && conda clean --all",
                first_for=("Conda",),
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=("https://docs.astral.sh/uv/reference/environment/",),
        said_by="uv 0.1-0.12, pip 22-26",
    ),
    KnownError(
        id="pip-conflict",
        section=SECTION,
        title="pip finds no set of versions",
        summary="The packages that were requested need different versions of the same package.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("because these package versions have conflicting dependencies"),
            Pattern("The conflict is caused by:", r"^ {0,8}The conflict is caused by:"),
            Pattern("ResolutionImpossible", r"\bResolutionImpossible\b"),
            Pattern("resolution-too-deep", r"resolution-too-deep"),
        ),
        causes=(
            "Two packages are fixed to versions that need different versions of PyTorch or of a CUDA library.",
            "A file of requirements is older than the versions that are installed.",
        ),
        fixes=(
            Fix("Read the lines `The user requested` and `depends on` above: they name the two packages."),
            Fix(
                "Request the packages of PyTorch without fixed versions, from one index.",
                "pip install torch torchvision torchaudio --index-url https://download.pytorch.org/whl/cu128",
            ),
            Fix("Install in a new environment, so that old versions do not count.", "python -m venv .venv"),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(_PIP, sources.PYTORCH_INSTALL),
        said_by="pip 21-26",
    ),
    KnownError(
        id="conda-unsatisfiable",
        section=SECTION,
        title="conda finds no set of versions",
        summary="The packages cannot be installed together, or not with this Python or this driver.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            name("LibMambaUnsatisfiableError"),
            Pattern("nsatisfiableError: The following", r"UnsatisfiableError: The following specifications"),
            Pattern(
                "PackagesNotFoundError", r"PackagesNotFoundError: The following packages are (?:not available|missing)"
            ),
            Pattern("feature:", r"feature:[|@/\w-]{0,20}::?__cuda=="),
            literal("Could not solve for environment specs"),
            Pattern("conflicting with __cuda", r"has constraint __cuda[^\n]{1,40} conflicting with __cuda"),
            Pattern(
                "Cannot solve the request because of",
                r"Cannot solve the request because of:"
                r" (?P<reason>[^\n]{1,120})",
            ),
            Pattern(
                "which cannot be installed (as previously",
                r"which cannot be installed \(as previously explained\)",
            ),
            Pattern("with any installable versions", r"conflicts with any installable versions previously reported"),
            Pattern("failed to solve the conda requirements of", r"failed to solve the conda requirements of '"),
            Pattern("failed to solve requirements of environment", r"failed to solve requirements of environment '"),
            Pattern(
                "Virtual package '__cuda' does not match",
                r"Virtual package '__cuda' does not match any of the"
                r" available",
            ),
        ),
        causes=(
            "PyTorch no longer publishes packages for conda: the channel pytorch ends with version 2.5.1.",
            "The driver supports an older CUDA version (`__cuda`) than the packages need.",
            "Channels are mixed, such as defaults and conda-forge, or an old environment fixes other versions.",
        ),
        fixes=(
            Fix(
                "Install PyTorch with pip in a new environment of conda.",
                "conda create -n train python=3.12 && conda activate train && pip install torch torchvision",
            ),
            Fix(
                "Or take everything from conda-forge.",
                "conda create -n train -c conda-forge --override-channels python=3.12 pytorch-gpu",
            ),
            Fix(
                "Show the CUDA version that conda sees; it must be at least that of the packages.",
                "conda info | grep -i -A 6 'virtual packages'",
            ),
            Fix(
                "On a host without a GPU, such as a login node, name the version of the nodes.",
                "CONDA_OVERRIDE_CUDA=12.8 conda install -c conda-forge pytorch-gpu",
                first_for=("Virtual package '__cuda'",),
            ),
            Fix(
                "With pixi, name the CUDA version of the driver in `[system-requirements]`, take everything from"
                " conda-forge, and remove systems for which a package does not exist.",
                first_for=("Cannot solve the request", "failed to solve requirements of"),
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(_CONDA_CUDA, "https://github.com/pytorch/pytorch/issues/138506"),
        said_by="conda 23-25, libmamba 1.5-2.3, pixi 0.20-0.60",
    ),
    KnownError(
        id="pip-system-python",
        section=SECTION,
        title="pip must not change the system's Python",
        summary="The distribution manages this Python, and pip refuses to install into it.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(Pattern("externally-managed-environment", r"error: externally-managed-environment"),),
        causes=("Debian, Ubuntu since 23.04, Fedora and Homebrew protect their Python.",),
        fixes=(
            Fix("Use an environment.", "python3 -m venv .venv && .venv/bin/pip install torch"),
            Fix("Or uv, which creates one.", "uv venv && uv pip install torch"),
            Fix("In a container that has no other use, allow it.", "pip install --break-system-packages torch"),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=("https://packaging.python.org/en/latest/specifications/externally-managed-environments/",),
        said_by="pip 23-26",
    ),
)
