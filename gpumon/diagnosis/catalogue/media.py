"""Errors of images, videos, sound and boxes: decoding on the CPU and on the GPU, and rendering."""

from typing import Final

from gpumon.diagnosis.catalogue.datasets import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="media-unreadable",
        section=SECTION,
        title="Image, sound or video cannot be read",
        summary="A file of the dataset is missing, damaged, empty, or of another format than its name says.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "Assertion failed) !",
                r"error: \(-215:Assertion failed\) !(?P<empty>_?src|ssize|_?img|image|buf)\.empty\(\)",
            ),
            Pattern("Failed to load audio from ", r"Failed to load audio from (?P<path>[^\n]{1,160})"),
            Pattern("LibsndfileError: Error opening", r"LibsndfileError: Error opening (?P<path>[^\n]{1,200})"),
            Pattern(
                "RuntimeError: Error opening '",
                r"RuntimeError: Error opening '(?P<path>[^'\n]{1,200})': (?:Format not recogni[sz]ed|System error"
                r"|File contains data in an unknown format)",
            ),
            Pattern(
                "The number of declared samples in the recording",
                r"The number of declared samples in the recording diverged from the one obtained",
            ),
        ),
        causes=(
            "The download or the copy was incomplete: compare size and checksum.",
            "OpenCV returns an empty image when the file does not exist or cannot be read, and fails only later.",
            "The file is a page with an error message, or a Git LFS pointer, instead of the data.",
        ),
        fixes=(
            Fix(
                "Find the files that cannot be read.",
                """\
from pathlib import Path
from PIL import Image

for path in Path("data").rglob("*.jpg"):
    try:
        Image.open(path).load()
    except OSError as error:
        print(path, error)""",
            ),
            Fix("Check the image right after it was read.", "assert image is not None, path"),
            Fix("Show what the file really is.", "head -c 100 FILE"),
            Fix(
                "Lhotse: the lengths in the manifest are not those of the files, as after cutting or resampling: make"
                " the manifest again from the files.",
                "from lhotse import Recording\n\nprint(Recording.from_file('FILE.wav'))",
                first_for=("declared samples",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.opencv.org/4.x/d4/da8/group__imgcodecs.html",),
        said_by="OpenCV 4, soundfile 0.12, Lhotse 1.0-1.30",
    ),
    KnownError(
        id="video-decode",
        section=SECTION,
        title="Video or sound cannot be decoded",
        summary="FFmpeg, which TorchCodec, PyAV and decord use, could not decode a file or the frame in question.",
        context=ContextState.ALIVE,
        patterns=(
            literal("Invalid data found when processing input"),
            literal("Could not push packet to decoder"),
            literal("Could not receive frame from decoder"),
            literal("Requested next frame while there are no more frames left to decode"),
            literal("No valid stream found in input file"),
            Pattern("Invalid frame index=", r"Invalid frame index=(?P<frame>-?\d{1,9}) for streamIndex="),
            Pattern("No frames could be decoded from", r"No frames could be decoded from (?P<path>[^\n]{1,200})"),
            literal("query timestamps unexpectedly violate the tolerance"),
            Pattern(
                "to retrieve last few frames",
                r"Unable to handle EOF because it takes too long to retrieve last few frames(?: and"
                r" `(?P<name>DECORD_EOF_RETRY_MAX))?",
            ),
            literal("cannot find video stream with wanted index"),
            Pattern("DECORDError", r"decord\._ffi\.base\.DECORDError: (?P<reason>[^\n]{1,160})"),
        ),
        causes=(
            "The file is damaged, cut off, or a Git LFS pointer.",
            "The decoder was opened before the DataLoader forked its workers, which then read through one file.",
            "The codec, mostly AV1, is not part of this FFmpeg.",
            "The times or frame numbers of the dataset do not belong to this video.",
        ),
        fixes=(
            Fix(
                "Find the files that cannot be decoded.",
                """\
from pathlib import Path

from torchcodec.decoders import VideoDecoder

for path in Path("videos").rglob("*.mp4"):
    try:
        decoder = VideoDecoder(path)
        decoder[len(decoder) - 1]
    except Exception as error:
        print(path, error)""",
            ),
            Fix(
                "Read videos by TorchCodec: decord is no longer developed, and fails at the ends of many files.",
                "pip install torchcodec\nexport FORCE_QWENVL_VIDEO_READER=torchcodec",
                first_for=("DECORD_EOF_RETRY_MAX",),
            ),
            Fix(
                "Open decoders in the workers only, or do not fork the workers.",
                'loader = DataLoader(dataset, num_workers=4, multiprocessing_context="spawn")',
                first_for=("push packet to decoder: Invalid data",),
            ),
            Fix(
                "Install an FFmpeg that decodes AV1.",
                'conda install -c conda-forge "ffmpeg<8"',
                first_for=("Function not implemented",),
            ),
            Fix(
                "Create the index of the dataset again from the videos, or allow a larger difference of the times.",
                "python -m lerobot.scripts.lerobot_train --tolerance_s=0.01",
                first_for=("violate the tolerance", "Invalid frame index", "no more frames left"),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/meta-pytorch/torchcodec/blob/main/src/torchcodec/_core/SingleStreamDecoder.cpp",
            "https://github.com/huggingface/lerobot/pull/4526",
        ),
        said_by="TorchCodec 0.1-0.12, PyAV 10-15, decord 0.6, LeRobot 0.3-0.5",
    ),
    KnownError(
        id="boxes-invalid",
        section=SECTION,
        title="Boxes are not valid",
        summary="A detector, its loss or an augmentation got boxes that end before they begin, or are NaN.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("assert (boxes", r"assert \(boxes(?P<boxes>[12])\[:, 2:\] >= boxes[12]\[:, :2\]\)\.all\(\)"),
            Pattern(
                " (corner) format, but got",
                r"boxes(?P<boxes>[12]) must be in \[x0, y0, x1, y1\] \(corner\) format, but got",
            ),
            literal("All bounding boxes should have positive height and width"),
            Pattern(
                " to be in the range [0.0, 1.0]",
                r"Expected (?P<side>[xy]_m(?:in|ax)) for bbox [^\n]{1,160}? to be in the range \[0\.0, 1\.0\]",
            ),
            Pattern("_max is less than or equal to ", r"(?P<side>[xy])_max is less than or equal to [xy]_min for bbox"),
            literal("Expected target boxes to be a tensor of shape [N, 4]"),
            literal("matrix contains invalid numeric entries"),
        ),
        causes=(
            "The boxes of the model (boxes1 in DETR) are NaN: training has diverged.",
            "The labels are width and height where corners are expected, or the reverse.",
            "A box of the labels is empty, or reaches beyond the image after a crop.",
        ),
        fixes=(
            Fix(
                "Check the labels: corners in order, inside the image, and not empty.",
                "print(boxes[(boxes[:, 2:] <= boxes[:, :2]).any(1)])",
            ),
            Fix(
                "Check whether the model's boxes are NaN; then use bfloat16 or float32, a lower learning rate, and"
                " clip the gradients.",
                "print(outputs['pred_boxes'].isfinite().all())",
                first_for=("boxes1", "nan,", "invalid numeric entries"),
            ),
            Fix("Give images without an object boxes of shape (0, 4).", "boxes = torch.zeros((0, 4))"),
            Fix(
                "In albumentations, drop what is left of boxes outside of the image.",
                'parameters = albumentations.BboxParams(format="pascal_voc", clip=True, min_area=1)',
                first_for=("for bbox",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/facebookresearch/detr/issues/101",
            "https://github.com/pytorch/vision/blob/main/torchvision/models/detection/generalized_rcnn.py",
        ),
        said_by="torchvision 0.13-0.28, transformers 4.30-5.0, albumentations 1-2",
    ),
    KnownError(
        id="audio-save",
        section=SECTION,
        title="Sound cannot be saved",
        summary="The encoder does not know which format to write: the name has no extension, or there is no name.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "Couldn't allocate AVFormatContext", r"Couldn't allocate AVFormatContext\. (?:The destination|Check)"
            ),
        ),
        causes=(
            "torchaudio 2.9 writes through TorchCodec, which chooses the format by the extension of the file.",
            "The destination is a buffer in memory, or a file with an unknown extension.",
        ),
        fixes=(
            Fix("Name the format.", 'torchaudio.save(buffer, samples, rate, format="wav")'),
            Fix("Or write with soundfile.", 'soundfile.write("output.wav", samples.T.cpu().numpy(), rate)'),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/niknah/ComfyUI-F5-TTS/issues/71",),
        said_by="TorchCodec 0.9",
    ),
    KnownError(
        id="video-decode-gpu",
        section=SECTION,
        title="Video cannot be decoded on the GPU",
        summary="TorchCodec asked FFmpeg and NVDEC, the GPU's decoder, for a video, and did not get it.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "Failed to create specified HW device",
                r"Failed to create specified HW device[.:]? ?(?P<reason>[^\n]{0,80})",
            ),
            Pattern("Unsupported device: cuda", r"RuntimeError: Unsupported device: cuda"),
            Pattern(
                "Expected format to be AV_PIX_FMT_CUDA",
                r"Expected format to be AV_PIX_FMT_CUDA, got (?P<format>\w{2,20})",
            ),
            Pattern("Failed to get decoder caps", r"Failed to get decoder caps: (?P<code>\d{1,4})"),
            literal("Invalid codec for NvDecoder"),
        ),
        causes=(
            "This TorchCodec, or this FFmpeg, was built without CUDA.",
            "The container does not get the driver's libraries for videos.",
            "The GPU has no decoder for this codec or format, such as for AV1 on an older GPU.",
            "The GPU's memory is full, or too many decoders are open.",
        ),
        fixes=(
            Fix("Decode on the CPU.", 'decoder = VideoDecoder(path, device="cpu")'),
            Fix(
                "Install the build for CUDA, of the version that belongs to PyTorch.",
                "pip install --upgrade torch torchcodec --index-url https://download.pytorch.org/whl/cu130",
            ),
            Fix(
                "Start the container with the libraries for videos.",
                "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility,video IMAGE",
            ),
            Fix("Check with `ffmpeg -decoders` that FFmpeg has decoders whose names end in _cuvid."),
        ),
        empty_cache="Helps if PyTorch's unused cache fills the GPU: the decoder's memory is outside of that cache.",
        sources=(
            "https://github.com/meta-pytorch/torchcodec/issues/566",
            "https://developer.nvidia.com/video-encode-decode-support-matrix",
        ),
        said_by="TorchCodec 0.1-0.12",
    ),
    KnownError(
        id="opengl-context",
        section=SECTION,
        title="OpenGL does not get the GPU",
        summary="A renderer asks for OpenGL without a screen, through EGL, and the driver's part for it is missing.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern("eglInitialize() failed", r"\beglInitialize\(\) failed"),
            Pattern("eglGetDisplay() failed", r"\beglGetDisplay\(\) failed"),
            Pattern("eglMakeCurrent() failed", r"\beglMakeCurrent\(\) failed"),
            Pattern("[cudaGraphics", r"Cuda error: (?P<code>\d{1,3})\[(?P<call>cudaGraphics\w{2,40})"),
            Pattern(
                "has no attribute 'RasterizeCudaContext'",
                r"module 'nvdiffrast\.torch' has no attribute '(?P<name>RasterizeCudaContext)'",
            ),
            literal("Cannot initialize a EGL device display"),
            literal("err = EGL_NOT_INITIALIZED"),
            Pattern("gladLoadGL error", r"FatalError: gladLoadGL error"),
            Pattern("nable to load EGL library", r"[Uu]nable to load EGL library"),
            Pattern("has no attribute 'glGetError'", r"'NoneType' object has no attribute '(?P<name>glGetError)'"),
            Pattern(
                "has no attribute 'eglQueryString'", r"'NoneType' object has no attribute '(?P<name>eglQueryString)'"
            ),
            literal("X11: The DISPLAY environment variable is missing"),
            Pattern("NoSuchDisplayException: ", r"NoSuchDisplayException: Cannot connect to \"None\""),
        ),
        causes=(
            "The container has no libraries for graphics: NVIDIA_DRIVER_CAPABILITIES lacks graphics.",
            "GLVND or Mesa's EGL is loaded instead of NVIDIA's, or the user may not open /dev/dri.",
            "GPUs such as the A100 in MIG mode have no graphics; nvdiffrast before 0.3 has OpenGL only.",
        ),
        fixes=(
            Fix(
                "With nvdiffrast 0.3 or newer, rasterize with CUDA, which needs no OpenGL.",
                "context = nvdiffrast.torch.RasterizeCudaContext()",
            ),
            Fix(
                "Start the container with the libraries for graphics.",
                "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=all IMAGE",
            ),
            Fix("Install EGL.", "sudo apt-get install -y libegl1 libgles2 libglvnd-dev"),
            Fix(
                "For MuJoCo and pyrender, choose EGL, or OSMesa on the CPU.",
                "MUJOCO_GL=osmesa PYOPENGL_PLATFORM=osmesa python train.py",
                first_for=("EGL device", "EGL_NOT"),
            ),
            Fix(
                "Render without a screen: let MuJoCo and PyOpenGL use EGL, with its libraries installed.",
                "sudo apt-get install -y libegl1 libgles2; MUJOCO_GL=egl PYOPENGL_PLATFORM=egl python train.py",
                first_for=("gladLoadGL", "EGL library", "glGetError", "eglQueryString", "DISPLAY environment"),
            ),
            Fix(
                "For pyglet and old Gym, start a virtual screen.",
                "sudo apt-get install -y xvfb; xvfb-run -a python train.py",
                first_for=("NoSuchDisplay",),
            ),
            Fix(
                "Upgrade nvdiffrast: version 0.3 is the first with it.",
                "pip install --no-build-isolation git+https://github.com/NVlabs/nvdiffrast",
                first_for=("no attribute 'RasterizeCudaContext'",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://nvlabs.github.io/nvdiffrast/",
            "https://github.com/NVlabs/nvdiffrast/issues/72",
        ),
        said_by="nvdiffrast 0.2-0.3, MuJoCo 2-3, PyOpenGL 3.1",
    ),
    KnownError(
        id="nvjpeg",
        section=SECTION,
        title="Image cannot be decoded on the GPU",
        summary="The decoder nvJPEG, which DALI and torchvision use, rejects an image or cannot run.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern('NVJPEG error "', r"NVJPEG error \"(?P<code>\d{1,2})\""),
            Pattern("NVJPEG_STATUS_", r"(?P<status>NVJPEG_STATUS_(?!SUCCESS)[A-Z_]{4,40})"),
            literal("torchvision not compiled with nvJPEG support"),
        ),
        causes=(
            "Code 3 or 4, BAD_JPEG or JPEG_NOT_SUPPORTED: a damaged file, or one in CMYK, 12 bits or arithmetic code.",
            "Code 5, ALLOCATOR_FAILURE: the GPU has no memory left for the decoder.",
            "Code 6, EXECUTION_FAILED: a very large image, or a library that does not fit the driver.",
        ),
        fixes=(
            Fix(
                "Decode on the CPU.",
                'images = fn.decoders.image(files, device="cpu")',
            ),
            Fix(
                "Find files that are no valid JPEG, and remove or convert them.",
                """\
from pathlib import Path
from PIL import Image

for path in Path("data").rglob("*.jpg"):
    with Image.open(path) as image:
        if image.format != "JPEG" or image.mode not in ("RGB", "L"):
            print(path, image.format, image.mode)""",
            ),
            Fix("Use smaller batches and fewer threads, so that the decoder gets memory."),
            Fix(
                "Upgrade DALI and nvImageCodec together.",
                "pip install --upgrade nvidia-dali-cuda120 nvidia-nvimgcodec-cu12",
            ),
        ),
        empty_cache="Helps if PyTorch's unused cache fills the GPU: the decoder's memory is outside of that cache.",
        sources=(
            "https://docs.nvidia.com/cuda/nvjpeg/index.html",
            "https://github.com/NVIDIA/DALI/issues/211",
        ),
        said_by="DALI 0.3-1.50, torchvision 0.9-0.25",
    ),
    KnownError(
        id="espeak-missing",
        section=SECTION,
        title="Program for phonemes is missing",
        summary="A speech model needs espeak-ng, which turns text into phonemes, and it is no package of pip.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(literal("espeak not installed on your system"),),
        causes=(
            "Neither espeak-ng nor its library is installed.",
            "On Windows, the library is not found without the variable that names it.",
        ),
        fixes=(
            Fix("Install espeak-ng.", "sudo apt-get install -y espeak-ng"),
            Fix(
                "On Windows, install eSpeak NG from its releases, and set PHONEMIZER_ESPEAK_LIBRARY to the path of its"
                " libespeak-ng.dll."
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://bootphon.github.io/phonemizer/install.html",),
        said_by="phonemizer 3.0-3.3",
    ),
)
