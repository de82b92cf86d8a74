"""Errors of packages without a build: compiled parts that are missing, and wheels that the index does not have."""

from typing import Final

from gpumon.diagnosis.catalogue import sources
from gpumon.diagnosis.catalogue.packages import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="extension-not-built",
        section=SECTION,
        title="Compiled part of a package is missing",
        summary="The Python files of the package are there, but its compiled extension is not.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "No module named '",
                r"No module named '(?P<module>(?!vllm\b)\w{1,40}(?:\.\w{1,40}){0,4})\._C'",
            ),
            Pattern(
                "cannot import name '_C' from ",
                r"cannot import name '_C' from (?:partially initialized module"
                r" )?'(?P<module>(?!torch')\w{1,40}(?:\.\w{1,40}){0,4})'",
            ),
            Pattern("cannot import name 'csrc' from ", r"cannot import name 'csrc' from '(?P<module>\w{1,40})'"),
            Pattern("name '_C' is not defined", r"NameError: name '(?P<module>_C)' is not defined"),
            literal("Failed to load custom C++ ops"),
            Pattern("No module named '", r"No module named '(?P<module>\w{1,40}(?:\.\w{1,40}){0,4})\._ext'"),
        ),
        causes=(
            "The package was installed without nvcc, so that its build skipped the CUDA code.",
            "The program runs in the source folder of the package, which hides the installed, compiled one.",
            "The extension was built for another version of Python.",
        ),
        fixes=(
            Fix(
                "In the folder of its source, build the package again with the CUDA toolkit and the installed PyTorch.",
                "CUDA_HOME=/usr/local/cuda FORCE_CUDA=1 pip install --no-build-isolation --force-reinstall --no-deps"
                " -e .",
            ),
            Fix("Run the program from another folder than the package's source."),
            Fix(
                "Check the toolkit and PyTorch's CUDA version.",
                "nvcc --version; python -c 'import torch; print(torch.version.cuda)'",
            ),
            Fix(
                "Install mmcv with its operators, in place of mmcv-lite or of a build without CUDA.",
                "pip uninstall -y mmcv mmcv-lite; pip install openmim; mim install mmcv",
                first_for=("mmcv._ext",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/IDEA-Research/GroundingDINO", sources.CPP_EXTENSIONS),
    ),
    KnownError(
        id="te-pytorch-missing",
        section=SECTION,
        title="Transformer Engine: its part for PyTorch is missing",
        summary="The package transformer-engine is installed, but not the library of transformer-engine-torch.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(Pattern("so_path = next(so_dir.glob(", r"so_path = next\(so_dir\.glob\("),),
        causes=(
            "The package was installed or upgraded without [pytorch], or its parts have different versions.",
            "The library for PyTorch could not be built, as without nvcc or cuDNN.",
        ),
        fixes=(
            Fix(
                "Remove all parts, and install them together with that for PyTorch.",
                "pip uninstall -y transformer-engine transformer-engine-cu12 transformer-engine-torch"
                " && pip install --no-build-isolation 'transformer-engine[pytorch]'",
            ),
            Fix("Show the installed parts, whose versions must be equal.", "pip list | grep -i transformer"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/NVIDIA/TransformerEngine/issues/1541",
            "https://github.com/NVIDIA/Megatron-LM/issues/1274",
        ),
        said_by="Transformer Engine 1",
    ),
    KnownError(
        id="circular-import",
        section=SECTION,
        title="Module hides a package of the same name",
        summary="A module is imported while it is still being imported; mostly, a file has the name of the package.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "partially initialized module '",
                r"partially initialized module '(?P<module>(?!torch(?:vision)?\b)[\w.]{1,100})'",
            ),
            Pattern(
                "' is not a package",
                r"No module named '(?P<name>[\w.]{1,100})'; '(?P<module>[\w.]{1,100})' is not a"
                r" package",
            ),
        ),
        causes=(
            "The folder of the program has a file such as datasets.py or transformers.py, which Python finds first.",
            "Two modules of a package import each other, because its versions are mixed.",
        ),
        fixes=(
            Fix("Show which file is imported.", "python -c 'import MODULE; print(MODULE.__file__)'"),
            Fix("Rename the file of the program, and delete its compiled copy.", "rm -rf __pycache__"),
            Fix(
                "If it is the package's own file, install the package again.",
                "pip install --force-reinstall --no-deps PACKAGE",
            ),
            Fix(
                "For OpenCV, remove all of its packages, and install one.",
                "pip uninstall -y opencv-python opencv-contrib-python opencv-python-headless && pip install"
                " opencv-python-headless",
                first_for=("'cv2'",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.python.org/3/faq/programming.html",),
        said_by="Python 3.8-3.14",
    ),
    KnownError(
        id="no-wheel",
        section=SECTION,
        title="pip finds no build of a package",
        summary="The index has no wheel of this version for this Python, system and CUDA version.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "No matching distribution found for ",
                r"No matching distribution found for (?P<package>[\w-]{2,40})(?P<version>[=<>!~]{1,3}[\w.]{1,20}\+cu"
                r"\d{2,3}\w{0,20})",
            ),
            Pattern(
                "No matching distribution found for ",
                r"No matching distribution found for (?P<package>nvidia[-_]\w[\w-]{1,30}|tensorrt[\w-]{0,16}|jax-cuda"
                r"\w{0,20}"
                r"|cupy-cuda\w{1,12}|tensorflow-gpu|onnxruntime-gpu|sgl[-_]kernel|flashinfer[\w-]{0,12}|pytorch-trito"
                r"n)\b",
            ),
            Pattern(
                "No matching distribution found for ",
                r"No matching distribution found for (?P<package>xformers|triton|torch(?:vision|audio)?"
                r"|flash[-_]attn|bitsandbytes|deepspeed|vllm)(?P<version>[=<>!~]{1,3}[\w.]{1,20})?(?![\w+.-])",
            ),
        ),
        causes=(
            "This version of Python is newer or older than those for which the package has wheels.",
            "The version is only in another index, such as the one for its CUDA version; PyPI has no `+cu` versions.",
            "The index has no more, or not yet, wheels of this version for this CUDA version or system.",
        ),
        fixes=(
            Fix(
                "Check the version of Python and the system.",
                "python -c 'import sys, platform; print(sys.version, platform.machine())'",
            ),
            Fix(
                "Install from the index for the CUDA version, and let pip choose the version.",
                "pip install torch torchvision --index-url https://download.pytorch.org/whl/cu130",
            ),
            Fix(
                "Or create an environment with a version of Python that has wheels.",
                "conda create -n fresh python=3.12",
            ),
            Fix(
                "List the versions that this index has.",
                "pip index versions torch --index-url https://download.pytorch.org/whl/cu126",
            ),
            Fix(
                "Triton of PyPI has wheels for Linux only: on Windows, install triton-windows instead.",
                "pip install triton-windows",
                first_for=("found for triton",),
                hidden_otherwise=True,
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.PYTORCH_INSTALL,),
        said_by="pip 9-25",
    ),
    KnownError(
        id="comfyui-node-outdated",
        section=SECTION,
        title="ComfyUI and a custom node are of different times",
        summary="A custom node replaces a function of ComfyUI, and ComfyUI calls it with arguments it does not have.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                " positional arguments",
                r"(?P<function>forward_orig\w{0,20}|make_forward\.<locals>\.forward)\(\) takes"
                r" (?:from \d{1,2} to )?\d{1,2} positional arguments",
            ),
            Pattern(
                "got an unexpected keyword argument",
                r"(?P<function>forward_orig\w{0,20}|\w{1,40}_sample_wrappers?\w{0,30})\(\) got an unexpected keyword"
                r" argument '(?P<argument>\w{1,40})'",
            ),
            Pattern(
                "keyword argument 'latent_shapes'", r"got an unexpected keyword argument '(?P<argument>latent_shapes)'"
            ),
        ),
        causes=(
            "ComfyUI was updated and the node was not, such as those of PuLID, IPAdapter or TeaCache.",
            "The node was updated, and is newer than ComfyUI.",
        ),
        fixes=(
            Fix("Update the node; the traceback names its folder.", "git -C ComfyUI/custom_nodes/NODE pull"),
            Fix(
                "Check that ComfyUI runs without custom nodes, then enable them one by one.",
                "python main.py --disable-all-custom-nodes",
            ),
            Fix("If the node has no newer version, go back to an older ComfyUI.", "git -C ComfyUI checkout v0.3.40"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://docs.comfy.org/troubleshooting/custom-node-issues",
            "https://github.com/Comfy-Org/ComfyUI/issues/6077",
        ),
        said_by="ComfyUI 0.3-0.15",
    ),
    KnownError(
        id="operators-not-built",
        section=SECTION,
        title="CUDA operators of a repository are not built",
        summary="The program imports an extension that is a part of the repository, and was not compiled.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "No module named '",
                r"No module named '(?P<module>(?:\w{1,40}\.){0,4}(?:MultiScaleDeformableAttention|pointnet2_(?:ops|cuda"
                r"|\w{1,12}_cuda)|pointops|curope|(?:droid|lietorch)_backends|_(?:gridencoder|raymarching|freqencoder"
                r"|shencoder|hash_encoder)|(?!fused_|flash|causal|select|pycuda|upfirdn|bias_act|filtered_)"
                r"\w{1,30}_(?:cuda|plugin)|chamfer(?:_[23]D)?"
                r"|emd|alt_cuda_corr|dcn_?v2|DCN|pointgroup_ops|custom_rasterizer_kernel))'",
            ),
        ),
        causes=(
            "A step of the repository's installation, such as `sh make.sh` or `python setup.py install`, was left out.",
            "The step failed, mostly because nvcc is missing or its version is not that of PyTorch.",
            "The extension was built in another environment, or for another version of Python.",
        ),
        fixes=(
            Fix(
                "Build the operators in the folder of the repository that has their setup.py.",
                "find . -name setup.py; cd FOLDER_OF_SETUP && pip install --no-build-isolation .",
            ),
            Fix("If the folder is empty, fetch the submodules first.", "git submodule update --init --recursive"),
            Fix(
                "If the build fails, check the toolkit and PyTorch's CUDA version.",
                "nvcc --version; python -c 'import torch; print(torch.version.cuda)'",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/fundamentalvision/Deformable-DETR#compiling-cuda-operators",
            sources.CPP_EXTENSIONS,
        ),
        said_by="Python 3.6-3.14",
    ),
)
