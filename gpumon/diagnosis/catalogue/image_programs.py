"""Errors of programs for images: ComfyUI, web interfaces of Stable Diffusion, and scripts that train for them."""

from typing import Final

from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Programs for images"

_COMFY: Final = "https://github.com/Comfy-Org/ComfyUI/blob/master/comfy/sd.py"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="image-model-file",
        section=SECTION,
        title="File is not the model that this loader expects",
        summary="The file was read, and it is no model, text encoder or VAE that the loader knows.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Could not detect model type of",
                r"ERROR: Could not detect model type of: (?P<file>[^\n]{1,200})",
            ),
            Pattern(
                " is invalid: None",
                r"ERROR: (?P<part>clip input|VAE) is invalid: None",
            ),
            Pattern(
                "Failed to recognize model type", r"(?:ValueError: |AssertionError: )Failed to recognize model type"
            ),
            Pattern(
                "KeyError: '",
                r"KeyError: '(?P<key>(?![\w.]{0,160}lora_)(?:time_embed\.0\.weight|"
                r"model\.diffusion_model\.[\w.]{1,100}|"
                r"cond_stage_model\.[\w.]{1,100}"
                r"|first_stage_model\.[\w.]{1,100}|(?:double|single)_blocks\.[\w.]{1,80}|conditioner\.[\w.]{1,80}))'",
            ),
            Pattern(
                "AssertionError: You do not have", r"AssertionError: You do not have (?P<part>[\w ]{2,40}) state dict"
            ),
            Pattern("conv_in.weight", r"(?:KeyError: |processing !!! |Message:\*{0,2} )'(?P<key>conv_in\.weight)'"),
        ),
        causes=(
            (
                "The file holds one part only, as those of Flux, Wan or Qwen-Image do: text encoders and VAE are other"
                " files."
            ),
            "It is a LoRA, a text encoder or a quantized file, which other loaders read.",
            "The program is older than the model, or the file is damaged.",
        ),
        fixes=(
            Fix("Load the file with the loader of its kind: Load Diffusion Model, not Load Checkpoint."),
            Fix("Add the loaders of the text encoders and of the VAE; in Forge, choose them at the top of the page."),
            Fix("Update the program.", "git -C ComfyUI pull"),
            Fix("Check the size of the file against the page of the model.", "ls -l ComfyUI/models/diffusion_models"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_COMFY,),
        said_by="ComfyUI 0.2-0.9, Stable Diffusion WebUI Forge of 2024-2025",
    ),
    KnownError(
        id="comfy-node-import",
        section=SECTION,
        title="ComfyUI: node could not be imported",
        summary="A folder of custom nodes failed to load; a workflow that uses its nodes does not run.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "module for custom nodes: ",
                r"Cannot import (?P<module>[^\n]{1,200}?) module for custom nodes: (?P<reason>[^\n]{1,160})",
            ),
            Pattern("(IMPORT FAILED): ", r"seconds \(IMPORT FAILED\): (?P<module>[^\n]{1,200})"),
        ),
        causes=(
            "A package that the node needs is not installed in the Python of ComfyUI.",
            "The node was written for other versions of ComfyUI, PyTorch or transformers.",
        ),
        fixes=(
            Fix(
                "Install what the node needs with the Python that runs ComfyUI; that of the portable build is below"
                " it.",
                "python -m pip install -r ComfyUI/custom_nodes/NODE/requirements.txt",
            ),
            Fix("Update the node and ComfyUI.", "git -C ComfyUI/custom_nodes/NODE pull"),
            Fix(
                "Start without custom nodes, to see whether one breaks the others.",
                "python main.py --disable-all-custom-nodes",
            ),
            Fix(
                "Install the package with that file again, in the version for the installed PyTorch.",
                first_for=("undefined symbol",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/Comfy-Org/ComfyUI/blob/master/nodes.py",),
        said_by="ComfyUI 0.2-0.9",
        is_warning=True,
        is_echo=True,
    ),
    KnownError(
        id="comfy-workflow",
        section=SECTION,
        title="ComfyUI: workflow does not fit this installation",
        summary="A value of the workflow is not there on this host: a file, a node or an input.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("Value not in list: ", r"Value not in list: (?P<input>\w{1,60}): (?P<value>[^\n]{1,120}?) not in "),
            literal("Exception when validating node"),
            Pattern("Failed to validate prompt", r"Failed to validate prompt for output (?P<node>[\w:]{1,20})"),
            literal("Prompt outputs failed validation"),
            Pattern("Required input is missing: ", r"Required input is missing: (?P<input>\w{1,60})"),
            Pattern(
                "Cannot execute because",
                r"Cannot execute because (?:a )?node (?P<node>[^\n]{1,80}?) (?:does not exist|is missing)",
            ),
        ),
        causes=(
            "The file has another name or folder than in the workflow.",
            "A custom node is missing, or was not imported: the log of the start says so.",
            "A required input is not connected.",
        ),
        fixes=(
            Fix(
                "Put the file into its folder below models, then choose it in the node.",
                "ls -R ComfyUI/models | head -n 80",
            ),
            Fix(
                "Install missing nodes with ComfyUI Manager, and read the log of the start for IMPORT FAILED.",
                first_for=("does not exist",),
            ),
            Fix("Connect the input that the message names.", first_for=("Required input",)),
            Fix(
                "Update the node that the log names: its check of the inputs failed.",
                "git -C ComfyUI/custom_nodes/NODE pull",
                first_for=("Exception when validating",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/Comfy-Org/ComfyUI/blob/master/execution.py",),
        said_by="ComfyUI 0.2-0.9",
    ),
    KnownError(
        id="comfy-unloaded",
        section=SECTION,
        title="ComfyUI ran out of memory",
        summary="GPU memory ran out while a node ran, and ComfyUI removed all models from the GPU; the next run may"
        " succeed.",
        context=ContextState.ALIVE,
        patterns=(literal("Got an OOM, unloading all loaded models"),),
        causes=(
            "The image, the video or the batch is too large for this GPU.",
            "The models of the workflow do not fit together: text encoders, the diffusion model and the VAE.",
        ),
        fixes=(
            Fix("Use a smaller image, fewer frames, or a model that is quantized to FP8 or GGUF."),
            Fix("Decode in tiles: use the node VAE Decode (Tiled)."),
            Fix("Keep less of the models on the GPU.", "python main.py --lowvram"),
        ),
        empty_cache="No effect: ComfyUI calls it itself when it unloads its models.",
        sources=("https://github.com/Comfy-Org/ComfyUI",),
        said_by="ComfyUI 0.2-0.9",
        is_echo=True,
    ),
    KnownError(
        id="webui-install",
        section=SECTION,
        title="Web interface could not install a package",
        summary="At its start, the program installs what it needs; pip or git failed, and its output stands below"
        " this line.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Error: Couldn't ",
                r"RuntimeError: Couldn't (?P<step>install|clone|fetch|checkout) (?P<package>[\w -]{2,40})\.",
            ),
        ),
        causes=(
            "The version of Python has no wheels for the version of PyTorch that the program asks for.",
            "The host has no way to the internet, or the disk is full.",
            "The repository or the branch, from which the program clones, is no longer there.",
        ),
        fixes=(
            Fix("Read the output of pip or git below this line."),
            Fix(
                "Use the version of Python that the program asks for; for Stable Diffusion WebUI, this is 3.10.",
                "python3 --version",
            ),
            Fix("Delete the environment, and start the program again.", "rm -rf venv"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/AUTOMATIC1111/stable-diffusion-webui/blob/master/modules/launch_utils.py",),
        said_by="Stable Diffusion WebUI 1.0-1.10, Forge of 2024-2025",
    ),
    KnownError(
        id="image-training",
        section=SECTION,
        title="Script that trains for images refuses the settings or the data",
        summary="The script of kohya checks its settings, the folders and the cached latents, and one does not fit.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("NaN detected in latents", r"NaN detected in latents: (?P<file>[^\n]{1,200})"),
            Pattern(
                "when caching ",
                r"when caching (?:latents|Text Encoder output|text encoder outputs?), (?P<reason>[^\n]{1,160})",
            ),
            Pattern("are not compatible, ", r"latents cache file are not compatible, (?P<reason>[^\n]{1,120})"),
            Pattern(
                "network for Text Encoder cannot be trained with",
                r"network for Text Encoder cannot be trained with caching Text Encoder outputs",
            ),
        ),
        causes=(
            "The VAE of SDXL exceeds float16, so that latents become NaN.",
            "Latents or text outputs are cached, and a setting would change them in each step.",
            "Folders must be named NUMBER_NAME, such as 10_cat, below the folder that is given.",
        ),
        fixes=(
            Fix(
                "Run the VAE in float32.",
                "accelerate launch sdxl_train_network.py --no_half_vae --config_file train.toml",
            ),
            Fix("With cached latents, leave out --color_aug and --random_crop.", first_for=("when caching latents",)),
            Fix(
                "With cached text outputs, train the U-Net only.",
                "accelerate launch sdxl_train_network.py --cache_text_encoder_outputs --network_train_unet_only",
                first_for=("Text Encoder",),
            ),
            Fix("Show the folders and what is in them.", "ls -l images/*"),
            Fix(
                "Delete the cached latents, which another version or setting wrote.",
                "rm -f images/*/*.npz",
                first_for=("latents cache file",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/kohya-ss/sd-scripts/blob/main/train_network.py",),
        said_by="sd-scripts 0.6-0.9",
    ),
    KnownError(
        id="comfy-shapes",
        section=SECTION,
        title="ComfyUI: parts of different models were combined",
        summary="Two parts of the workflow belong to different models: the text encoder, the VAE, a LoRA, a ControlNet"
        " or the image encoder.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "mat1 and mat2 shapes cannot be multiplied",
                r"(?:processing !!! |Message:\*{0,2} )(?:RuntimeError: )?mat1 and mat2 shapes cannot be multiplied"
                r" \((?P<rows>\d{1,19})x(?P<columns>\d{1,19})",
            ),
        ),
        causes=(
            "The loader of the text encoder has another file, or another type selected, than the model needs.",
            "A quantized text encoder (GGUF) of a model that edits images lacks its second file, mmproj.",
            "ComfyUI or a custom node is older than the model.",
        ),
        fixes=(
            Fix(
                "Compare with the template of this model in ComfyUI: the files of the text encoder and VAE, and"
                " the type"
                " in the loader.",
            ),
            Fix("Update ComfyUI and its nodes.", "git pull && pip install --upgrade -r requirements.txt"),
            Fix("Take LoRA, ControlNet and style models out, and add them again one by one."),
            Fix("For GGUF, put the file mmproj next to the text encoder.", "ls -l models/text_encoders"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/Comfy-Org/ComfyUI/issues/5836",
            "https://github.com/city96/ComfyUI-GGUF/issues/329",
        ),
        said_by="ComfyUI of 2024-2026",
    ),
    KnownError(
        id="nunchaku",
        section=SECTION,
        title="Nunchaku: the file does not fit the GPU or the version",
        summary="A check in the 4-bit kernels of Nunchaku failed: the file has another form than the kernels expect.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "shape.dataExtent == other.shape.dataExtent",
                r"this->shape\.dataExtent == other\.shape\.dataExtent",
            ),
            Pattern("wscales.dtype() == Tensor::", r"wscales\.dtype\(\) == Tensor::(?P<type>\w{2,16})"),
            Pattern("nunchaku._C.", r"\(self: nunchaku\._C\.(?P<class>\w{2,60})"),
            Pattern(
                "Assertion failed: ",
                r"Assertion failed: (?P<check>(?!this->shape|wscales)[^\n]{1,80}?), file [^\n]{0,120}?nunchaku",
            ),
        ),
        causes=(
            "Blackwell (RTX 50) runs the files named fp4, and older GPUs those named int4; Hopper has no such kernels.",
            "The package nunchaku and the nodes of ComfyUI-nunchaku are of different versions.",
        ),
        fixes=(
            Fix(
                "Use the file for this GPU: svdq-fp4 for compute capability 12.0, svdq-int4 for 7.5 to 8.9.",
                "nvidia-smi --query-gpu=name,compute_cap --format=csv",
            ),
            Fix(
                "Install the wheel of the same version as the nodes, for this PyTorch, from its page of releases.",
                "pip list | grep -i -E 'nunchaku|torch'",
                first_for=("nunchaku._C",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/nunchux-ai/nunchaku/issues/130",
            "https://github.com/nunchux-ai/nunchaku/issues/218",
        ),
        said_by="Nunchaku 0.1-1.1",
    ),
    KnownError(
        id="comfy-version",
        section=SECTION,
        title="ComfyUI and a custom node are of different versions",
        summary="The node calls functions of ComfyUI, or of another node, that have changed since it was"
        " written, or was"
        " given a model that it does not support.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "Exception Message:",
                r"Exception Message:\*{0,2} (?:AttributeError:"
                r" )?'(?P<object>(?!NoneType|str'|int'|float|list'|dict'|tuple|"
                r"bool|Tensor|Parameter|set')\w{3,60})' object has no attribute '(?P<name>\w{1,60})'",
            ),
            Pattern(
                "Exception Message:",
                r"Exception Message:\*{0,2} (?:TypeError: )?(?P<object>[\w.<>]{1,120})\(\) (?:got an unexpected keyword"
                r" argument '(?P<name>\w{1,60})'|missing \d required positional argument|takes \d positional argument)",
            ),
            Pattern(
                "' object has no attribute '",
                r"(?<!Message: )(?<!Message:\*\* )'(?P<object>UNetModel|ModelPatcher|ComfyUI\w{3,60})' object has no"
                r" attribute '(?P<name>\w{1,60})'",
            ),
            Pattern("module 'comfy", r"module 'comfy(?P<object>[\w.]{0,60})' has no attribute '(?P<name>\w{1,60})'"),
        ),
        causes=(
            "ComfyUI was updated and the node was not, or the other way around.",
            "Two nodes change the same part of ComfyUI.",
            "The node is for another kind of model than the one that was loaded.",
        ),
        fixes=(
            Fix(
                "Update ComfyUI and the node that the stack names, with their requirements.",
                "git pull && git -C custom_nodes/NODE pull && pip install -r requirements.txt",
            ),
            Fix("Find the node that is the cause.", "python main.py --disable-all-custom-nodes"),
            Fix("Check which model the node is for."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://docs.comfy.org/troubleshooting/custom-node-issues",
            "https://github.com/Comfy-Org/ComfyUI/issues/2939",
        ),
        said_by="ComfyUI of 2024-2026",
    ),
)
