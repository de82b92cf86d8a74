"""Errors of imports: modules that are not there, names that a version does not have, libraries of the system."""

from typing import Final

from gpumon.diagnosis.catalogue.packages import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_LIBRARY: Final = (
    r"libEGL|libOSMesa|libICE|libX11|"
    r"libsndfile|libgomp"
    r"|libpython3\.\d{1,2}m?|libopenblas|libav(?:util|codec|format|device|filter)|libsox|libnuma|libaio|libibverbs"
    r"|librdmacm|libffi|libbz2|libsqlite3|libjpeg|libpng\d{0,2}|libtbb|libiomp5|libmkl_\w{1,20}|"
    r"libjemalloc|libtcmalloc\w{0,12}"
)
"""Libraries of the system that images without a desktop or a compiler lack."""

_COVERED: Final = (
    r"(?:Seq2Seq|SFT|DPO|GRPO|PPO|KTO|ORPO|Reward)?(?:Trainer|Config|TrainingArguments)\.|Accelerator\.|AdamW\.|"
    r"GradScaler\.|LLM\.|EngineArgs\.|Client\.|INSTRUCTOR\."
)
"""Classes whose arguments another entry covers."""

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="python-removed",
        section=SECTION,
        title="Python or setuptools no longer has this module",
        summary="Python 3.12 removed distutils and imp, setuptools 82 removed pkg_resources, and the code uses one.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("named 'pkg_resources", r"No module named '(?P<module>pkg_resources)'"),
            Pattern("named 'distutils", r"No module named '(?P<module>distutils(?:\.\w{1,30}){0,2})'"),
            literal("module 'distutils' has no attribute 'version'"),
            Pattern("named 'setuptools", r"No module named '(?P<module>setuptools(?:\.\w{1,30}){0,2})'"),
            Pattern("module named 'imp'", r"No module named '(?P<module>imp)'"),
            Pattern(
                " from 'pkg_resources'",
                r"cannot import name '(?P<name>packaging|parse_version|\w{1,40})' from 'pkg_resources'",
            ),
            literal("module 'pkgutil' has no attribute 'ImpImporter'"),
            Pattern("install_layout", r"install_layout\. Did you mean: 'install_platlib'"),
        ),
        causes=(
            "PyTorch before 2.9 and the setup files of many extensions import pkg_resources.",
            "A new environment of Python 3.12 or later contains no setuptools.",
            "pip builds in an isolated environment, which has the newest setuptools.",
        ),
        fixes=(
            Fix("Install a setuptools that still has the module.", "python -m pip install 'setuptools<81' wheel"),
            Fix("If pip builds a package, let it use that one.", "python -m pip install --no-build-isolation PACKAGE"),
            Fix(
                "For ImpImporter, upgrade setuptools; for imp, upgrade the package that uses it.",
                "python -m pip install --upgrade pip setuptools",
                first_for=("ImpImporter", "'imp'"),
            ),
            Fix(
                "For packaging from pkg_resources, PyTorch 1 needs an older one.",
                "python -m pip install 'setuptools<70'",
                first_for=("'packaging'",),
            ),
            Fix(
                "Upgrade PyTorch, whose tensorboard before 1.11 uses distutils.version, or keep an older setuptools.",
                "python -m pip install 'setuptools<59.6'",
                first_for=("no attribute 'version'",),
            ),
            Fix("Or use the last Python that has imp and distutils.", "conda create -n fresh python=3.11"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://setuptools.pypa.io/en/latest/history.html",
            "https://docs.python.org/3/whatsnew/3.12.html",
            "https://github.com/nerfstudio-project/gsplat/pull/899",
        ),
        said_by="Python 3.12-3.14, setuptools 70-82",
    ),
    KnownError(
        id="numpy-removed",
        section=SECTION,
        title="NumPy of this version does not have the name",
        summary="NumPy 1.24 removed np.float, np.int and np.bool, NumPy 2 removed further names, and old code"
        " uses them.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("was removed in the NumPy 2.0", r"`np\.(?P<name>\w{1,30})` was removed in the NumPy 2\.0 release"),
            Pattern(
                "module 'numpy", r"module 'numpy(?P<module>(?:\.\w{1,20}){0,3})' has no attribute '(?P<name>\w{1,40})'"
            ),
            Pattern("cannot import name '", r"cannot import name '(?P<name>\w{1,60})' from 'numpy(?:\.\w{1,20}){0,3}'"),
            Pattern("No module named 'numpy._core", r"No module named '(?P<module>numpy\._core(?:\.\w{1,30})?)'"),
        ),
        causes=(
            "The package was written for an older NumPy than the installed one.",
            "A file was pickled under NumPy 2, where numpy._core is new, and NumPy 1 reads it.",
        ),
        fixes=(
            Fix("Upgrade the package whose file the traceback names last.", "python -m pip install --upgrade PACKAGE"),
            Fix(
                "Or install NumPy 1, which still has the names that NumPy 2 removed.", "python -m pip install 'numpy<2'"
            ),
            Fix(
                "Or install an older NumPy, which is before 1.24 for np.float, np.int and np.bool; in own code, write"
                " float, int and bool.",
                "python -m pip install 'numpy<1.24'",
                first_for=("attribute 'float'", "attribute 'int'", "attribute 'bool'", "attribute 'object'"),
            ),
            Fix(
                "The files of two versions of NumPy are mixed: install it again.",
                "python -m pip uninstall -y numpy; python -m pip install --force-reinstall numpy",
                first_for=("_umath_linalg",),
                hidden_otherwise=True,
            ),
            Fix("In own code, use Python's types.", "values = values.astype(float)"),
            Fix(
                "In the file that the traceback names, import Python's own module.",
                'import warnings\n\nwarnings.filterwarnings("ignore")',
                first_for=("attribute 'warnings'",),
            ),
            Fix(
                "For numpy._core, read the file under NumPy 2.",
                "python -m pip install 'numpy>=2'",
                first_for=("numpy._core",),
            ),
            Fix(
                "Two versions of NumPy are mixed: install it again, and restart Python or the notebook.",
                "python -m pip install --force-reinstall 'numpy<2.2'",
                first_for=("_no_nep50_warning",),
                hidden_otherwise=True,
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://numpy.org/doc/stable/release/1.24.0-notes.html",
            "https://numpy.org/doc/stable/numpy_2_0_migration_guide.html",
        ),
        said_by="NumPy 1.24-2.3",
    ),
    KnownError(
        id="openmp-twice",
        section=SECTION,
        title="OpenMP runtime is loaded twice",
        summary="Two packages bring their own copy of Intel's OpenMP, and the second one refuses to start.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(Pattern("OMP: Error #15: Initializing ", r"OMP: Error #15: Initializing (?P<library>[\w.]{1,40})"),),
        causes=("PyTorch from pip and NumPy, SciPy or OpenCV from conda are in one environment.",),
        fixes=(
            Fix(
                "Install all packages with one tool in a new environment.",
                "python3 -m venv fresh && fresh/bin/pip install torch numpy",
            ),
            Fix("List the copies.", "python -c 'import sys; print(sys.prefix)'; conda list | grep -i openmp"),
            Fix(
                "Find the copies of the library; keep the one of PyTorch, in torch\\lib, and rename the other.",
                "python -c \"import pathlib, sys; print(*pathlib.Path(sys.prefix).rglob('libiomp5md.dll'))\"",
                first_for=("libiomp5md.dll",),
            ),
            Fix("As a stopgap, permit it; results may be wrong.", "KMP_DUPLICATE_LIB_OK=TRUE python train.py"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/pytorch/pytorch/issues/37377",),
        said_by="Intel OpenMP 2018-2025",
    ),
    KnownError(
        id="system-library-missing",
        section=SECTION,
        title="Library of the system is missing",
        summary="A package needs a shared library that the system or the image does not contain.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                ": cannot open shared object file",
                rf"(?P<library>\b(?:{_LIBRARY})\.so[\w.]{{0,20}}): cannot open shared object file",
            ),
        ),
        causes=(
            "OpenCV needs libGL and libglib, which an image without a desktop lacks.",
            "The Python that runs the program has no shared library (libpython), such as one of pyenv.",
            "The environment's folder lib is not searched.",
        ),
        fixes=(
            Fix(
                "Install the libraries that OpenCV, sound and OpenMP need.",
                "sudo apt-get install -y libgl1 libglib2.0-0 libsndfile1 libgomp1",
            ),
            Fix("Or use OpenCV without windows.", "pip uninstall -y opencv-python; pip install opencv-python-headless"),
            Fix(
                "For libraries of the environment itself, let the loader search it.",
                "export LD_LIBRARY_PATH=$CONDA_PREFIX/lib:$LD_LIBRARY_PATH",
                first_for=("libpython", "libmkl"),
            ),
            Fix(
                "Find the package that contains the library.",
                "sudo apt-get install -y apt-file; sudo apt-file update; apt-file search libGL.so.1",
            ),
            Fix("Install FFmpeg.", "sudo apt-get install -y ffmpeg", first_for=("libav",)),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/opencv/opencv-python#frequently-asked-questions",),
        said_by="glibc, OpenCV 4",
    ),
)
