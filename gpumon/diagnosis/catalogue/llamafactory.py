"""Errors of LLaMA-Factory: its settings, datasets, templates and processors, and options that exclude each other."""

from typing import Final

from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "LLaMA-Factory"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="llamafactory-data",
        section=SECTION,
        title="LLaMA-Factory: dataset or template does not fit",
        summary="The name of a dataset or template is unknown, or the samples do not suit the template or the stage.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("Undefined dataset ", r"Undefined dataset (?P<name>[\w./-]{1,120}) in "),
            Pattern("Error: Template ", r"Error: Template (?P<name>[\w.-]{1,60}) does not exist"),
            Pattern(
                "dataset_info.json due to",
                r"Cannot open [^\n]{0,160}?dataset_info\.json due to (?P<reason>[^\n]{1,80})",
            ),
            literal("Please check whether the correct `template` is used"),
            literal("The dataset is not applicable in the current training stage"),
            Pattern("Invalid JSON format in", r"Invalid JSON format in (?:tool description|function message)"),
            literal("Please increase `cutoff_len` if a video placeholder was truncated"),
        ),
        causes=(
            "The dataset is not listed in dataset_info.json of the folder that dataset_dir names.",
            "The template belongs to another model, or to a newer version of LLaMA-Factory.",
            "A sample has more or fewer images than <image> in its text, or was cut by cutoff_len.",
        ),
        fixes=(
            Fix(
                "List what is registered, and the path that the run uses.",
                "cat data/dataset_info.json",
                first_for=("Undefined dataset", "Cannot open"),
            ),
            Fix(
                "Use the template of the model, as the table in the README names it; for a new model, upgrade.",
                "pip install --upgrade llamafactory",
                first_for=("Template ", "`template`"),
            ),
            Fix(
                "Write <image> once for each image of the sample, and raise cutoff_len.",
                "cutoff_len: 8192",
                first_for=("cutoff_len",),
            ),
            Fix("Check the format of the samples for this stage.", "head -c 600 data/train.json"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/hiyouga/LLaMA-Factory/blob/main/data/README.md",),
        said_by="LLaMA-Factory 0.8-0.9",
    ),
    KnownError(
        id="llamafactory-options",
        section=SECTION,
        title="LLaMA-Factory: options exclude each other",
        summary="The configuration combines settings that LLaMA-Factory does not support together.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("Cannot specify `val_size`", r"Cannot specify `val_size` if `(?P<name>\w{1,20})` is"),
            Pattern(
                "` is only valid for ",
                r"`(?P<name>\w{1,40})` is only valid for (?:\w{1,12} or )?(?:LoRA training"
                r"|interleaved mixing|sigmoid loss)",
            ),
            Pattern(
                " incompatible with ",
                r"(?P<name>[\w`^-]{2,30}) (?:is|are) incompatible with (?:DeepSpeed(?: ZeRO-3"
                r"| yet|\.)"
                r"|PTQ-quantized models|S\^2-Attn|`streaming`|`train_on_prompt`)",
            ),
            Pattern(
                "is not compatible with ",
                r"(?P<name>DoRA|FP8 training) is not compatible with (?:PTQ-quantized|quantization)",
            ),
            literal("We only accept 4-bit or 8-bit quantization"),
            literal("`reward_model` is necessary for PPO training"),
            Pattern(
                "Cannot use ",
                r"Cannot use (?P<name>LoRA with GaLore|GaLore, APOLLO|PiSSA for current training"
                r"|device map for quantized models"
                r"|multiple adapters in DeepSpeed|`predict_with_generate` and)",
            ),
            Pattern("is only valid for the LoRA method", r"Adapter is only valid for the LoRA method"),
            literal("Please use `FORCE_TORCHRUN=1`"),
            literal("Please launch distributed training with `llamafactory-cli`"),
            literal("Please specify `max_steps` in streaming mode"),
            literal("Streaming mode should have an integer val size"),
        ),
        causes=("An example for another method, stage or number of GPUs was changed in part.",),
        fixes=(
            Fix("Remove the option that the message names, or the one that it excludes."),
            Fix(
                "Start several GPUs, or DeepSpeed on one, through torchrun.",
                "torchrun --nproc-per-node 2 src/train.py config.yaml",
                first_for=("FORCE_TORCHRUN", "Please launch"),
            ),
            Fix(
                "Start from the example for this method.",
                "ls examples/train_full examples/train_lora examples/train_qlora",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/hiyouga/LLaMA-Factory/tree/main/examples",),
        said_by="LLaMA-Factory 0.8-0.9",
    ),
    KnownError(
        id="llamafactory-processor",
        section=SECTION,
        title="Processor of the multimodal model was not loaded",
        summary="LLaMA-Factory could not load what turns images, video or sound into inputs, and goes on without"
        " it until"
        " it is needed.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "was not found, please check and update your",
                r"(?P<part>[Pp]rocessor|feature extractor) was not found, please check and update your (?:processor"
                r" config|model file)",
            ),
        ),
        causes=(
            "The folder of the model lacks preprocessor_config.json, as after merging or converting it.",
            "The installed transformers does not know this processor, or a package that it needs is missing.",
        ),
        fixes=(
            Fix(
                "Load the processor alone: its own error is the cause.",
                "python -c \"from transformers import AutoProcessor; AutoProcessor.from_pretrained('MODEL')\"",
            ),
            Fix("Install what processors need.", "pip install --upgrade transformers torchvision pillow av librosa"),
            Fix(
                "Copy the missing files from the original model.",
                "hf download NAME/MODEL --include '*processor*' 'chat_template*' --local-dir MODEL",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/hiyouga/LLaMA-Factory/blob/main/src/llamafactory/data/mm_plugin.py",),
        said_by="LLaMA-Factory 0.9",
    ),
)
