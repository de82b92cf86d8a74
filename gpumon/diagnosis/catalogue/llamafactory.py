"""Errors of LLaMA-Factory with its settings, its data sets and the processors of multimodal models."""

from typing import Final

from gpumon.diagnosis.catalogue.models import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="llamafactory-setting",
        section=SECTION,
        title="LLaMA-Factory rejects a setting",
        summary="A name in the configuration is not known to this version, or does not fit the kind of training.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("Error: Template ", r"ValueError: Template (?P<name>[\w.-]{1,40}) does not exist"),
            Pattern("Undefined dataset ", r"Undefined dataset (?P<name>\S{1,80}) in \S{0,80}dataset_info\.json"),
            Pattern(
                "dataset_info.json due to",
                r"Cannot open [^\n]{0,160}?dataset_info\.json due to (?P<reason>[^\n]{1,80})",
            ),
            Pattern(
                "is not applicable in the current training stage",
                r"The dataset is not applicable in the current training stage",
            ),
            Pattern(
                "Please launch distributed training with",
                r"Please launch distributed training with `llamafactory-cli` or `torchrun`",
            ),
            Pattern("is only valid for the LoRA method", r"Adapter is only valid for the LoRA method"),
            Pattern(
                "is only valid for ",
                r"Error: `(?P<name>\w{3,40})` is only valid for (?:LoRA|Freeze or LoRA|sigmoid loss|interleaved)",
            ),
        ),
        causes=(
            "The template or the option came with a newer version of LLaMA-Factory than the installed one.",
            "The data set is not entered in dataset_info.json, or the program runs in another folder.",
        ),
        fixes=(
            Fix(
                "Upgrade LLaMA-Factory from its repository.",
                "git pull && pip install --no-build-isolation -e .",
            ),
            Fix(
                "Enter the data set, and name the folder of the file.",
                "grep -n '\": {' data/dataset_info.json; llamafactory-cli train config.yaml dataset_dir=data",
                first_for=("dataset",),
            ),
            Fix(
                "Start it with its own launcher.",
                "FORCE_TORCHRUN=1 llamafactory-cli train config.yaml",
                first_for=("Please launch",),
            ),
            Fix(
                "Set the kind of fine-tuning that the option is for.",
                "llamafactory-cli train config.yaml finetuning_type=lora",
                first_for=("only valid for",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/hiyouga/LLaMA-Factory/blob/main/src/llamafactory/data/template.py",),
        said_by="LLaMA-Factory 0.6-0.9",
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
