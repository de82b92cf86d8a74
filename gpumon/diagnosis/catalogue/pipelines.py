"""Errors of the pipelines of diffusers, and of programs that pipelines call: FFmpeg and Weights & Biases."""

from typing import Final

from gpumon.diagnosis.catalogue.models import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_DIFFUSERS: Final = "https://huggingface.co/docs/diffusers/optimization/memory"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="pipeline-offloaded",
        section=SECTION,
        title="Offloaded pipeline was moved",
        summary="The pipeline moves its parts between host and GPU itself, so that the program must not move it.",
        context=ContextState.ALIVE,
        patterns=(
            literal("It seems like you have activated sequential model offloading"),
            literal("It seems like you have activated model offloading by calling"),
            literal("It seems like you have activated a device mapping strategy on the pipeline"),
        ),
        causes=("The program calls enable_model_cpu_offload() or device_map, and to('cuda') as well.",),
        fixes=(
            Fix("Leave out the move.", "pipeline.enable_model_cpu_offload()"),
            Fix("Or leave out the offloading, if GPU memory suffices.", 'pipeline.to("cuda")'),
            Fix("Or undo the device map first.", 'pipeline.reset_device_map()\npipeline.to("cuda")'),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_DIFFUSERS,),
        said_by="diffusers 0.20-0.36",
    ),
    KnownError(
        id="pipeline-lora",
        section=SECTION,
        title="LoRA file does not fit the pipeline",
        summary="The file has names or shapes that diffusers cannot assign to the parts of this pipeline.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("Invalid LoRA checkpoint"),
            Pattern(
                "state_dict` should be empty at this point",
                r"`(?:original_)?state_dict` should be empty at this point"
                r" but has",
            ),
            Pattern("KeyError: '", r"KeyError: '(?P<name>[\w.]{0,160}lora_[\w.]{1,160})'"),
            Pattern("lora key not loaded: ", r"lora key not loaded: (?P<name>[\w.]{3,200})"),
        ),
        causes=(
            "The LoRA was trained for another model: SD 1.5, SDXL, Flux and Wan differ, and their versions too.",
            "The program that trained it writes another format, which only newer versions of diffusers convert.",
        ),
        fixes=(
            Fix("Check on the page of the LoRA for which model it is."),
            Fix("Upgrade diffusers and PEFT.", "pip install --upgrade diffusers peft"),
            Fix(
                "Show the names in the file.",
                """\
from safetensors import safe_open

with safe_open("lora.safetensors", "pt") as file:
    print(list(file.keys())[:10])""",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://huggingface.co/docs/diffusers/tutorials/using_peft_for_inference",),
        said_by="diffusers 0.20-0.36",
    ),
    KnownError(
        id="pipeline-component",
        section=SECTION,
        title="Part of the pipeline cannot be loaded",
        summary="The pipeline names a class that the installed diffusers or transformers does not have.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "cannot be loaded as it does not seem to have",
                r"The component (?P<component>[^\n]{1,160}?) (?:of [^\n]{1,160}? )?cannot be loaded as it does"
                r" not seem to have",
            ),
            Pattern(
                "has been incorrectly initialized or ",
                r"has been incorrectly initialized or <class '(?P<component>[\w.]{1,120})'> is incorrectly implemented",
            ),
            Pattern(
                "Pipeline <class '",
                r"Pipeline <class '(?P<component>[\w.]{1,120})'> expected [^\n]{1,200}?, but only [^\n]{1,100}? were"
                r" passed\.",
            ),
        ),
        causes=(
            "The package of that class is missing, such as sentencepiece for T5, so that a placeholder stands for it.",
            "The model is newer than the installed diffusers.",
            "The model was saved or converted without this part.",
        ),
        fixes=(
            Fix(
                "Install what its text encoders need.",
                "pip install --upgrade diffusers transformers sentencepiece protobuf",
            ),
            Fix(
                "If the installed versions do not know the part, load and pass it yourself.",
                'processor = AutoProcessor.from_pretrained(name, subfolder="processor")\n'
                "pipeline = DiffusionPipeline.from_pretrained(name, processor=processor)",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/huggingface/diffusers/blob/main/src/diffusers/pipelines/pipeline_loading_utils.py",
        ),
        said_by="diffusers 0.20-0.36",
    ),
    KnownError(
        id="pipeline-task",
        section=SECTION,
        title="Task of the pipeline is not known",
        summary="The installed transformers has no pipeline for this task; version 5 removed some, such as"
        " summarization.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("Unknown task ", r"Unknown task (?P<task>[\w-]{2,40}), available tasks are"),
            Pattern("Invalid translation task ", r"Invalid translation task (?P<task>[\w-]{2,40}), use"),
        ),
        causes=(
            "The program was written for transformers 4.",
            "The name has a typing error, or no pair of languages.",
            "The installed transformers is older than the task.",
        ),
        fixes=(
            Fix("Use a model that generates text, with a prompt.", 'pipe = pipeline("text-generation", model=name)'),
            Fix("Or install the version that has the task.", 'pip install "transformers<5"'),
            Fix(
                "Name both languages.",
                'pipe = pipeline("translation_en_to_fr", model=name)',
                first_for=("translation_XX",),
            ),
            Fix(
                "If the task is newer than the installed version, upgrade.",
                "pip install --upgrade transformers",
                first_for=("task image-text-to-text",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://huggingface.co/docs/transformers/main_classes/pipelines",),
        said_by="transformers 4.30-5.0",
    ),
    KnownError(
        id="ffmpeg-missing",
        section=SECTION,
        title="Audio or video cannot be read",
        summary="The program FFmpeg, or a library that decodes the file, is not installed, or the file is damaged.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("No such file or directory: 'ffmpeg'", r"No such file or directory: 'ffmpeg'"),
            Pattern("Failed to load audio: ", r"RuntimeError: Failed to load audio: (?P<reason>[^\n]{1,120})"),
            Pattern(
                "find appropriate backend to handle uri",
                r"Couldn't find appropriate backend to handle uri"
                r" (?P<file>[^\n]{1,160})",
            ),
            Pattern("ffmpeg was not found but is required", r"ffmpeg was not found but is required"),
        ),
        causes=(
            "FFmpeg is not installed in this container or environment.",
            "torchaudio found neither soundfile, sox nor FFmpeg; its newest versions use TorchCodec only.",
            "The file is empty, damaged or no audio.",
        ),
        fixes=(
            Fix("Install FFmpeg.", "conda install ffmpeg -c conda-forge"),
            Fix(
                "For torchaudio, install a library that reads the file.",
                "pip install soundfile torchcodec",
                first_for=("appropriate backend",),
            ),
            Fix("Check the file.", "ls -l FILE; head -c 16 FILE", first_for=("audio: ffmpeg version",)),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/openai/whisper#setup",),
        said_by="openai-whisper of 2022-2025, torchaudio 2.0-2.8, transformers 4.20-5.0",
    ),
    KnownError(
        id="wandb-login",
        section=SECTION,
        title="Weights & Biases cannot be used",
        summary="The trainer reports to Weights & Biases, and there is no key, no network, or no access.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("api_key not configured", r"api_key not configured \(no-tty\)"),
            Pattern("API key must be 40 characters", r"API key must be 40 characters long"),
            Pattern(
                "wandb.errors.",
                r"\bwandb\.errors\.(?:\w{1,20}\.)?(?P<error>\w{1,40}): (?P<reason>[^\n]{1,120})",
            ),
        ),
        causes=(
            "The trainer reports by default wherever the package is installed.",
            "The host of the job has no way to the internet.",
        ),
        fixes=(
            Fix("Train without reports.", 'arguments = TrainingArguments(output_dir, report_to="none")'),
            Fix("Or write them to disk, and send them later.", "WANDB_MODE=offline python train.py"),
            Fix("Or log in once on this host.", "python -m wandb login"),
            Fix(
                "Upgrade wandb: keys have 86 characters since 2026, which versions before 0.22.3 refuse.",
                "pip install --upgrade wandb && python -m wandb login --relogin",
                first_for=("40 characters",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.wandb.ai/support/kb-articles/run_wandb_offline",),
        said_by="wandb 0.12-0.22",
    ),
)
