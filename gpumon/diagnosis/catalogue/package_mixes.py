"""Errors of packages that do not fit each other or the system: protobuf, Keras, Gradio, OpenCV; and failed builds."""

from typing import Final

from gpumon.diagnosis.catalogue.packages import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="protobuf-version",
        section=SECTION,
        title="Protobuf has another version than the package needs",
        summary="The package holds code that another version of protobuf generated.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("cannot import name 'builder'", r"cannot import name 'builder' from 'google\.protobuf\.internal'"),
            Pattern("Descriptors cannot ", r"TypeError: Descriptors cannot(?: not)? be created directly"),
            literal("'MessageFactory' object has no attribute 'GetPrototype'"),
            Pattern(
                "cannot import name 'runtime_version'", r"cannot import name 'runtime_version' from 'google\.protobuf'"
            ),
            Pattern(
                "Detected incompatible Protobuf",
                r"Detected incompatible Protobuf Gencode/Runtime versions [^\n]{1,160}",
            ),
            Pattern("cannot import name 'builder'", r"cannot import name 'builder' from 'google\.protobuf\.internal'"),
        ),
        causes=("Another package raised or lowered the version of protobuf: TensorFlow, wandb, onnx, sentencepiece.",),
        fixes=(
            Fix("Show who requires which version.", "python -m pip check; pip show protobuf"),
            Fix(
                "Install a version between the generations.",
                "pip install 'protobuf>=4.25,<6'",
                first_for=("GetPrototype",),
            ),
            Fix(
                "Or upgrade the package whose file ends in _pb2.py in the traceback.",
                "pip install --upgrade PACKAGE protobuf",
            ),
            Fix(
                "For the time being, use the slower implementation in Python.",
                "env PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python python train.py",
            ),
            Fix(
                "Code that is older than protobuf 3.19 needs protobuf 3.20.",
                "pip install 'protobuf<3.21'",
                first_for=("Descriptors",),
            ),
            Fix(
                "Upgrade protobuf to at least the version that generated the code.",
                "pip install --upgrade protobuf",
                first_for=("runtime_version", "Gencode", "'builder'"),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://protobuf.dev/support/cross-version-runtime-guarantee/",),
        said_by="protobuf 3.20-6.33",
    ),
    KnownError(
        id="package-generations",
        section=SECTION,
        title="Packages of two generations do not work together",
        summary="One package was upgraded over a change that the other, which uses it, does not know.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("Your currently installed version of Keras is Keras 3, but this is not yet supported"),
            Pattern("pydantic.errors.", r"pydantic\.errors\.(?P<error>Pydantic\w{4,40}): [^\n]{1,160}"),
            Pattern(
                "`BaseSettings` has been moved",
                r"`BaseSettings` has been moved to the `pydantic-settings`",
            ),
            Pattern(
                "not fully defined; you should define",
                r"is not fully defined; you should define `(?P<name>\w{1,60})`, then call",
            ),
            Pattern(
                "got an unexpected keyword argument 'socket_opt",
                r"ConnectionPool\.__init__\(\) got an unexpected keyword argument 'socket_options'",
            ),
            Pattern(
                "got an unexpected keyword argument 'proxies'",
                r"Client\.__init__\(\) got an unexpected keyword argument 'proxies'",
            ),
        ),
        causes=(
            "Such changes are pydantic 2, NumPy 2, Keras 3, httpx 0.28 and huggingface_hub 1.0.",
            "A file of requirements names no upper limit, so that pip chose the newest version.",
        ),
        fixes=(
            Fix("List what does not fit together.", "python -m pip check"),
            Fix(
                "Upgrade the package whose file is last in the traceback.",
                "pip install --upgrade PACKAGE",
            ),
            Fix(
                "Or install the generation for which it was written; name those that apply.",
                "pip install 'numpy<2' 'pydantic<2' 'httpx<0.28'",
            ),
            Fix(
                "For Keras 3 with transformers, install the old Keras too.",
                "pip install tf-keras",
                first_for=("Keras 3",),
            ),
            Fix(
                "For `proxies`, upgrade the client library: openai 1.55.3 and later work with httpx 0.28.",
                "pip install --upgrade openai",
                first_for=("'proxies'",),
            ),
            Fix(
                "For `socket_options`, upgrade httpx and httpcore together.",
                "pip install --upgrade httpx httpcore",
                first_for=("socket_options",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://docs.pydantic.dev/latest/migration/",
            "https://numpy.org/devdocs/numpy_2_0_migration_guide.html",
        ),
        said_by="pydantic 2, NumPy 1.24-2.3, Keras 3, httpx 0.28",
    ),
    KnownError(
        id="graphics-library",
        section=SECTION,
        title="OpenCV lacks a library of the desktop",
        summary="OpenCV was built for hosts with a screen, and this host or container has no such libraries.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "cannot open shared object file",
                r"(?P<library>lib(?:GL|EGL|GLU|OpenGL|gthread-2\.0|glib-2\.0|SM|ICE|Xext|Xrender|X11|xcb)"
                r"\.so[\d.]{0,8}):"
                r" cannot open shared object file",
            ),
            Pattern(
                "The function is not implemented. Rebuild the library with",
                r"The function is not implemented\. Rebuild the library with (?:Windows, )?GTK",
            ),
            Pattern(
                "Could not load the Qt platform plugin",
                r"qt\.qpa\.plugin: Could not load the Qt platform plugin \"(?P<plugin>\w{1,20})\"",
            ),
        ),
        causes=(
            "The container image is a small one.",
            "Both opencv-python and opencv-python-headless are installed, and one overwrote the other.",
        ),
        fixes=(
            Fix(
                "Install the build without windows.",
                "pip uninstall -y opencv-python opencv-contrib-python; pip install --force-reinstall"
                " opencv-python-headless",
            ),
            Fix("Or install the libraries.", "sudo apt-get install -y libgl1 libglib2.0-0"),
            Fix("Do not open windows on a server; write the image to a file.", 'cv2.imwrite("image.png", image)'),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://pypi.org/project/opencv-python-headless/",),
        said_by="OpenCV 4.5-4.12",
    ),
    KnownError(
        id="notebook-restart",
        section=SECTION,
        title="Notebook still uses the old version of a package",
        summary="A package was installed after it had been imported: the session has the old version in memory.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(literal("You must restart the runtime in order to use newly installed versions"),),
        causes=("A cell installs another version of NumPy, torch or another package that an earlier cell imported.",),
        fixes=(
            Fix("Restart the session, then run the cells again, without the one that installs."),
            Fix("Install everything in the first cell, before any import.", "pip install -r requirements.txt"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/googlecolab/colabtools/issues/5115",),
        said_by="pip in Google Colab",
        is_warning=True,
    ),
)
