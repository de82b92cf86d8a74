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
                r"KeyError: '(?P<key>time_embed\.0\.weight|model\.diffusion_model\.[\w.]{1,100}|"
                r"cond_stage_model\.[\w.]{1,100}"
                r"|first_stage_model\.[\w.]{1,100}|(?:double|single)_blocks\.[\w.]{1,80}|conditioner\.[\w.]{1,80})'",
            ),
            Pattern(
                "AssertionError: You do not have", r"AssertionError: You do not have (?P<part>[\w ]{2,40}) state dict"
            ),
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
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/Comfy-Org/ComfyUI/blob/master/nodes.py",),
        said_by="ComfyUI 0.2-0.9",
        is_warning=True,
    ),
    KnownError(
        id="comfy-workflow",
        section=SECTION,
        title="ComfyUI: workflow does not fit this installation",
        summary="A value of the workflow is not there on this host: a file, a node or an input.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("Value not in list: ", r"Value not in list: (?P<input>\w{1,60}): (?P<value>[^\n]{1,120}?) not in "),
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
            Fix("Install missing nodes with ComfyUI Manager, and read the log of the start for IMPORT FAILED."),
            Fix("Connect the input that the message names."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/Comfy-Org/ComfyUI/blob/master/execution.py",),
        said_by="ComfyUI 0.2-0.9",
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
            Fix("With cached latents, leave out --color_aug and --random_crop."),
            Fix(
                "With cached text outputs, train the U-Net only.",
                "accelerate launch sdxl_train_network.py --cache_text_encoder_outputs --network_train_unet_only",
            ),
            Fix("Show the folders and what is in them.", "ls -l images/*"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/kohya-ss/sd-scripts/blob/main/train_network.py",),
        said_by="sd-scripts 0.6-0.9",
    ),
)
