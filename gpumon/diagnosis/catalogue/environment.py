"""Errors of the environment of a program: the system's libraries, files, modules, and devices that it names."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Environment of the program"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="open-files",
        section=SECTION,
        title="Too many open files",
        summary="The process reached its limit of open files: each tensor that a DataLoader worker sends needs one.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("received 0 items of ancdata"),
            Pattern(
                "unable to open shared memory obje",
                r"unable to open shared memory obje[^\n]{0,120}?Too many open files",
            ),
            literal("Too many open files. Communication with the workers is no longer possible"),
            Pattern(
                "OSError: [Errno 24] Too many",
                r"OSError: \[Errno 24\] Too many open files: '(?P<file>[^'\n]{1,200})'",
            ),
        ),
        causes=(
            "Tensors from workers are kept in a list; each holds a file.",
            "The limit of open files is low, often 1024.",
        ),
        fixes=(
            Fix("Raise the limit, before the program starts.", "ulimit -n 65536"),
            Fix(
                "Share tensors by name instead of by open file.",
                'import torch.multiprocessing\n\ntorch.multiprocessing.set_sharing_strategy("file_system")',
            ),
            Fix("Copy what is kept, so that the worker's memory and file are freed.", "kept.append(batch.clone())"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.MULTIPROCESSING_NOTES,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="system-library-old",
        section=SECTION,
        title="System's C library is too old for this package",
        summary="A package was built on a newer Linux than this one, or an older libstdc++ is found first.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "version `GLIBC",
                r"(?:Error|python[\d.]{0,4}): (?:[^\n:]{0,160}/)?(?P<file>lib(?:c|m|stdc\+\+)\.so\.6):"
                r" version `(?P<version>GLIBC(?:XX)?_[\d.]{1,9})' not found",
            ),
            Pattern("version `CXXABI_", r"version `(?P<version>CXXABI_[\d.]{1,9})' not found"),
        ),
        causes=(
            "GLIBCXX or CXXABI: two versions of libstdc++ exist, and the older one is loaded.",
            "GLIBC: the wheel, such as one of flash-attn, was built on a newer distribution.",
        ),
        fixes=(
            Fix(
                "For GLIBCXX and CXXABI, install a newer libstdc++ into the environment.",
                "conda install -c conda-forge libstdcxx-ng",
                first_for=("GLIBCXX_", "CXXABI_"),
            ),
            Fix(
                "For GLIBC, use a container with a newer distribution, or build the package here.",
                "ldd --version",
                first_for=("`GLIBC_",),
            ),
            Fix("Show which file is loaded.", "LD_DEBUG=libs python -c 'import torch' 2>&1 | grep stdc"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/Dao-AILab/flash-attention/issues/1708",),
        said_by="glibc",
    ),
    KnownError(
        id="torch-attribute",
        section=SECTION,
        title="This PyTorch does not have this function or type",
        summary="A package was written for another version of PyTorch than the installed one.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "module 'torch",
                r"(?<!initialized )module 'torch(?P<module>(?:\.\w{1,30}){0,4})' has no attribute"
                r" '(?P<attribute>\w{1,60})'",
            ),
            Pattern(
                "Error: Unknown attribute ",
                r"AttributeError: Unknown attribute (?P<attribute>\w{1,60})",
            ),
        ),
        causes=(
            "PyTorch is older than the package requires: float8, torch.compiler and torch.accelerator are new.",
            "PyTorch is newer, and removed the function.",
        ),
        fixes=(
            Fix("Check what the installed packages require.", "pip check"),
            Fix(
                "Install the package's version for this PyTorch; a newer PyTorch from PyPI does not support this GPU.",
                "pip install 'PACKAGE<VERSION'",
                first_for=("AMD",),
            ),
            Fix(
                "Upgrade PyTorch and the package together.",
                "pip install --upgrade torch PACKAGE",
                first_for=(
                    "'float8_",
                    "'xpu'",
                    "'accelerator'",
                    "'uint16'",
                    "'register_pytree_node'",
                    "'get_default_device'",
                ),
            ),
            Fix("Or install the version of the package that was current with this PyTorch."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.SHOW_VERSIONS,),
        sources=(sources.PYTORCH_INSTALL,),
        said_by="Python",
    ),
    KnownError(
        id="torch-shadowed",
        section=SECTION,
        title="A file of the program hides PyTorch",
        summary="An import of torch found a file or folder named torch of the program, or modules import each other.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("partially initialized module 'torch", r"partially initialized module 'torch(?:\.\w{1,30}){0,4}'"),
        ),
        causes=(
            "A file named torch.py, or a folder named torch, stands next to the program.",
            "An import of PyTorch failed half way, and the program caught the exception.",
        ),
        fixes=(
            Fix("Show which file is imported.", "python -c 'import torch; print(torch.__file__)'"),
            Fix("Rename that file, and remove its cache.", "rm -rf __pycache__"),
            Fix("If it is PyTorch's own file, reinstall PyTorch.", "pip install --force-reinstall torch"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.PYTORCH_INSTALL,),
        said_by="Python",
    ),
    KnownError(
        id="device-string",
        section=SECTION,
        title="Name of a device is not valid",
        summary="A device has a name such as cuda:0 or cpu; the program built another text.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "device type at start of device string",
                r"device type at start of device string: (?P<device>[\w:-]{1,30})",
            ),
            Pattern("Invalid device string: ", r"Invalid device string: '(?P<device>[^'\n]{0,40})'"),
            Pattern(
                "Expected a cuda device with a specified index",
                r"Expected a cuda device with a specified index or an integer, but got: ?(?P<device>\S{0,20})",
            ),
            Pattern(
                "unsupported autocast device_type",
                r"User specified an unsupported autocast device_type '(?P<device>[\w:-]{1,30})'",
            ),
            Pattern("Invalid device, must be ", r"Error: Invalid device, must be (?:cuda|possible CUDA) device"),
        ),
        causes=(
            "The index is None or empty, as in cuda:None: LOCAL_RANK or an argument is not set.",
            "The device of a GPU is named cuda, not gpu.",
        ),
        fixes=(
            Fix(
                "Use cuda, and the local rank as index.",
                "import os\n\ndevice = f\"cuda:{os.environ.get('LOCAL_RANK', 0)}\"",
            ),
            Fix("Print what the program builds the name from.", "print(repr(device))"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/tensor_attributes.html",),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="heap-corrupted",
        section=SECTION,
        title="Heap of the process is corrupted",
        summary="Native code wrote outside of its memory or freed memory twice, and the C library ended the process.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("free(): corrupted", r"free\(\): (?P<reason>corrupted unsorted chunks)"),
            Pattern("malloc_consolidate(): ", r"malloc_consolidate\(\): (?P<reason>[a-z][\w ()-]{4,60})"),
            Pattern(
                "malloc(): ",
                r"\bmalloc\(\): (?P<reason>(?:invalid|corrupted|unaligned|unsorted|mismatching)[\w ()>-]{4,60})",
            ),
            Pattern("free(): invalid ", r"(?P<reason>free\(\): invalid (?:pointer|size|next size))"),
            Pattern("double free detected in tcache", r"double free detected in tcache \d"),
            Pattern("double free or corruption", r"double free or corruption \((?P<reason>!?\w{3,10})\)"),
            Pattern("corrupted size vs. prev", r"corrupted size vs\. prev_size"),
            Pattern("munmap_chunk(): invalid", r"munmap_chunk\(\): invalid pointer"),
        ),
        causes=(
            "Two packages bring different versions of one native library, such as OpenMP, protobuf or libstdc++.",
            "An extension was built for another PyTorch.",
        ),
        fixes=(
            Fix("Print the Python stack of the crash.", "PYTHONFAULTHANDLER=1 python train.py"),
            Fix("Import torch before the other packages, to test whether the order matters.", "import torch"),
            Fix("Install the packages in a new environment.", "python3 -m venv fresh && fresh/bin/pip install torch"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/pytorch/pytorch/issues/95770",),
        said_by="glibc",
    ),
)
