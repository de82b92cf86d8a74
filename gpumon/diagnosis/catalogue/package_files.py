"""Errors of installing packages that come from their files: downloads, wheels for another system, files in use."""

from typing import Final

from gpumon.diagnosis.catalogue import sources
from gpumon.diagnosis.catalogue.resolvers import SECTION
from gpumon.diagnosis.catalogue.wording import NO_CONTEXT_YET
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_UV_TORCH: Final = "https://docs.astral.sh/uv/guides/integration/pytorch/"
_WHEELS: Final = "https://packaging.python.org/en/latest/specifications/binary-distribution-format/"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="install-files",
        section=SECTION,
        title="Files of a package cannot be written or found",
        summary="The system refused pip a file: another program holds it, it must not be written, or it is not there.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Could not install packages due to an ",
                r"Could not install packages due to an (?:OSError|EnvironmentError): \[(?P<code>WinError"
                r" (?:2|3|5|32|206)|Errno (?:2|13|30))\]",
            ),
            Pattern(
                "' looks like a filename, but the file does not exist",
                r"Requirement '(?P<file>[^'\n]{1,200}\.whl)' looks like a filename, but the file does not exist",
            ),
        ),
        causes=(
            "WinError 5 or 32: a running program of the same environment, or an antivirus program, holds the file.",
            "Errno 13: the environment belongs to the system or to another user.",
            "Errno 2 or WinError 206: on Windows, the path of the file is longer than 260 characters.",
        ),
        fixes=(
            Fix(
                "Allow long paths on Windows, as administrator, and open a new terminal.",
                "reg add HKLM\\SYSTEM\\CurrentControlSet\\Control\\FileSystem /v LongPathsEnabled /t REG_DWORD /d 1 /f",
            ),
            Fix(
                "End every program that uses this environment, also notebooks and servers, then install again.",
                first_for=("WinError 5]",),
            ),
            Fix(
                "Install into an environment that belongs to you.",
                "python3 -m venv .venv && .venv/bin/pip install torch",
                first_for=("Errno 13]",),
            ),
            Fix(
                "Name the file with its folder, as it was downloaded.",
                "ls *.whl",
                first_for=("looks like a filename", ".whl'"),
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=("https://pip.pypa.io/en/stable/cli/pip_install/",),
        said_by="pip 20-25",
    ),
    KnownError(
        id="wheel-damaged",
        section=SECTION,
        title="Wheel is damaged",
        summary="The file of the package is not a complete wheel.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "' located at ",
                r"Wheel '(?P<package>[\w.-]{1,60})' located at (?P<file>[^\n]{1,250}?) is invalid",
            ),
            Pattern("has an invalid wheel", r"(?P<package>[\w.-]{1,60}) has an invalid wheel, "),
        ),
        causes=(
            "The download stopped halfway, or the file in the cache is incomplete.",
            "The file is a web page, or a pointer of Git LFS, instead of the wheel; it then has a few kilobytes.",
        ),
        fixes=(
            Fix("Check the size of the file, then download it again.", "ls -l *.whl; pip cache purge"),
            Fix("Prefer a release of the project, or an index of packages, to a file in a repository."),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(_WHEELS, "https://github.com/sunsetcoder/flash-attention-windows/issues/1"),
        said_by="pip 22-25",
    ),
    KnownError(
        id="wheel-not-for-system",
        section=SECTION,
        title="Wheel is for another Python or system",
        summary="The name of a wheel says for which Python and system it is made, and this is another one.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "is not a supported wheel on this platform",
                r"(?P<package>(?:[\w.-]{2,60}\+(?:cu|pt|torch|rocm)\d{2,3}|flash_attn-|xformers-|tensorrt_llm-)"
                r"[\w.+-]{1,120}\.whl) is not a supported wheel on this platform",
            ),
            Pattern(
                "dependency is incompatible with the current platform",
                r"A (?:URL|path) (?:\([^)\n]{1,250}\) )?dependency is incompatible with the current platform",
            ),
            Pattern(
                "requires a different Python: ",
                r"Package '(?P<package>[\w.-]{2,60})' requires a different Python: (?P<python>[\d.]{1,12}) not in"
                r" '(?P<required>[^'\n]{1,60})'",
            ),
        ),
        causes=(
            "The file is for another version of Python: cp312 in its name means Python 3.12.",
            "It is for another system: linux, win_amd64 or macosx; x86_64 or aarch64.",
        ),
        fixes=(
            Fix(
                "Take the file whose name has this Python, this system and the installed PyTorch.",
                "python -c 'import sys, platform, torch; print(sys.version, platform.platform(), torch.__version__)'",
            ),
            Fix(
                "Or create an environment with the Python for which the package is made.",
                "uv venv --python 3.12",
                first_for=("requires a different",),
            ),
            Fix(
                "In a project with a fixed address of a wheel, limit it to its system: add"
                " `; sys_platform == 'linux'` behind the address."
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(_WHEELS, sources.PYTORCH_INSTALL),
        said_by="pip 9-25, uv 0.2-0.9",
    ),
    KnownError(
        id="uv-fetch",
        section=SECTION,
        title="Package could not be downloaded",
        summary="The index or the file of a package could not be reached; the last line of the message is the reason.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("Failed to fetch: `", r"Failed to fetch: `\[?(?P<address>https?://[^`\s\]]{1,200})"),
            Pattern(
                "error sending request for url (https://",
                r"error sending request for url \((?P<address>https://(?:files\.pythonhosted|download\.pytorch"
                r"|pypi)\.[^)\s]{1,200})\)",
            ),
        ),
        causes=(
            "No connection, a proxy or a firewall; a node of a cluster often has none.",
            "PyTorch's index answers 403 for packages that it does not have.",
            "A proxy replaces the certificate, which uv does not know.",
        ),
        fixes=(
            Fix("Try again, with more patience and fewer connections.", "UV_HTTP_TIMEOUT=600 uv sync"),
            Fix("Check the way to the index; behind a proxy, set HTTPS_PROXY.", "wget -S --spider https://pypi.org"),
            Fix(
                "Use PyTorch's index for the packages of PyTorch only: mark it `explicit = true`, and name it in"
                " `[tool.uv.sources]`."
            ),
            Fix(
                "If a proxy replaces the certificate, let uv trust those of the system.",
                "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt uv sync",
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(_UV_TORCH, "https://github.com/pytorch/pytorch/issues/145983"),
        said_by="uv 0.4-0.9",
    ),
)
