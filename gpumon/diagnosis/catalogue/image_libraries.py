"""Errors of libraries that decode and change images on GPUs or before them: OpenCV and DALI."""

from typing import Final

from gpumon.diagnosis.catalogue.wording import NO_CONTEXT_YET, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "OpenCV and DALI"

_OWN_MEMORY: Final = "Frees only what PyTorch's cache holds; this library allocates for itself."

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="opencv-cuda",
        section=SECTION,
        title="OpenCV without CUDA",
        summary="The packages of OpenCV on PyPI contain no code for CUDA.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("module 'cv2' has no attribute 'cuda", r"module 'cv2' has no attribute 'cuda\w{0,12}'"),
            literal("DNN module was not built with CUDA backend"),
            Pattern(
                "module 'cv2.cuda' has no attribute '", r"module 'cv2\.cuda' has no attribute '(?P<name>\w{1,40})'"
            ),
        ),
        causes=(
            "The package `opencv-python` is built for the CPU only.",
            "An own build was made without CUDA or cuDNN, or is hidden by the package of pip.",
        ),
        fixes=(
            Fix(
                "Check what the build contains.",
                "python -c 'import cv2; print(cv2.getBuildInformation())' | grep -A 4 -i cuda",
            ),
            Fix(
                "Build OpenCV with the flags WITH_CUDA, WITH_CUDNN and OPENCV_DNN_CUDA; remove the package of pip"
                " first.",
                "pip uninstall -y opencv-python opencv-contrib-python opencv-python-headless",
            ),
            Fix(
                "Or decode and resize on the GPU with torchvision, DALI or CV-CUDA instead.", "pip install cvcuda-cu12"
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=("https://docs.opencv.org/4.x/d6/d15/tutorial_building_tegra_cuda.html",),
        said_by="OpenCV 4.5-4.12",
    ),
    KnownError(
        id="opencv-gpu-call",
        section=SECTION,
        title="OpenCV: a CUDA call failed",
        summary="A function of cv2.cuda called CUDA, which refused the call for the reason in the message.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "(-217:Gpu API call)",
                r"\(-217:Gpu API call\) (?P<reason>(?!no kernel|out of memory)[^\n]{1,80}?) in function ",
            ),
        ),
        causes=(
            "The image is empty, or so large or small that its kernel cannot be launched.",
            "OpenCV was built for another GPU or another CUDA version than those of this host.",
            "An earlier kernel of the same process failed.",
        ),
        fixes=(
            Fix("Print the size and the type of the image before the call.", "print(image.size(), image.type())"),
            Fix("Find the kernel that failed.", "CUDA_LAUNCH_BLOCKING=1 python main.py"),
            Fix(
                "Check for which GPUs OpenCV was built.",
                "python -c 'import cv2; print(cv2.getBuildInformation())' | grep -i -A 4 cuda",
            ),
        ),
        empty_cache=_OWN_MEMORY,
        sources=("https://docs.opencv.org/4.x/d8/d40/group__cudacore__init.html",),
        said_by="OpenCV 4.5-4.12",
    ),
    KnownError(
        id="dali-pipeline",
        section=SECTION,
        title="DALI: the pipeline failed",
        summary="An operator of NVIDIA DALI stopped the pipeline; its message names the operator and the reason.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern("Critical error in pipeline", r"Critical error in pipeline(?![^\n]{0,200}NVJPEG error)"),
            Pattern(
                "Error when executing ",
                r"Error when executing (?P<device>GPU|CPU|MIXED) operator (?P<operator>\w{1,60})",
            ),
            Pattern("Can't allocate ", r"Can't allocate (?P<bytes>\d{1,16}) bytes on (?:device (?P<gpu>\d{1,3})|host)"),
            Pattern(
                "[/opt/dali/", r"\[/opt/dali/[^\]\n]{1,160}\] (?:Assert on|nvml error|NVML error|CUDA)[^\n]{0,160}"
            ),
        ),
        causes=(
            "Memory: DALI decodes in its own memory on the GPU, next to PyTorch's.",
            "A file of the data set is damaged, or of a kind that the decoder does not support.",
            "NVML or libcuda is missing in the container.",
        ),
        fixes=(
            Fix("Read the lines below, which name the operator, the file and the reason."),
            Fix(
                "For memory, use smaller batches, a smaller queue and fewer threads.",
                "pipeline = train_pipeline(batch_size=64, num_threads=4, prefetch_queue_depth=1)",
            ),
            Fix("For a damaged file, let the reader skip it, or remove it from the list."),
            Fix("Install the build for the CUDA version of the driver.", "pip install --upgrade nvidia-dali-cuda120"),
        ),
        empty_cache=_OWN_MEMORY,
        sources=("https://docs.nvidia.com/deeplearning/dali/user-guide/docs/",),
        said_by="DALI 1.20-1.50",
    ),
    KnownError(
        id="pillow-removed",
        section=SECTION,
        title="Package uses names that Pillow no longer has",
        summary="Pillow 10 removed old names such as Image.ANTIALIAS, and an older package still uses them.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "module 'PIL.Image' has no attribute '",
                r"module 'PIL\.Image' has no attribute '(?P<name>(?!Resampling|Transpose)\w{1,40})'",
            ),
            Pattern("name 'PILLOW_VERSION' from", r"cannot import name '(?P<name>PILLOW_VERSION)' from 'PIL'"),
            Pattern(
                "Draw' object has no attribute 'textsize'",
                r"'(?:FreeType|Image)Draw' object has no attribute 'textsize'",
            ),
            Pattern(
                "Font' object has no attribute 'getsize",
                r"'(?:FreeType|Image)Font' object has no attribute 'getsize\w{0,12}'",
            ),
        ),
        causes=(
            "The package, such as an old torchvision, detectron2, MoviePy or YOLO, was written for Pillow 9 or older.",
        ),
        fixes=(
            Fix(
                "Upgrade the package that the traceback names.", "pip install --upgrade torchvision moviepy tensorboard"
            ),
            Fix(
                "Install the last Pillow that has the names, then restart the notebook's kernel.",
                "pip install 'pillow<10'",
                first_for=("ANTIALIAS", "textsize", "getsize"),
            ),
            Fix("In own code, use the new name.", "image = image.resize((224, 224), Image.LANCZOS)"),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=("https://pillow.readthedocs.io/en/stable/deprecations.html",),
        said_by="Pillow 7-12",
    ),
)
