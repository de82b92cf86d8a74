"""Errors of ms-swift, Axolotl and Ultralytics with their settings and data sets."""

from typing import Final

from gpumon.diagnosis.catalogue.models import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="swift-setting",
        section=SECTION,
        title="ms-swift rejects an argument",
        summary="An argument is not known to the installed ms-swift, or does not fit the others.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("There are errors in the template.encode", r"There are errors in the template\.encode"),
            Pattern("remaining_argv: ['", r"remaining_argv: \['(?P<arguments>[^\n]{1,160})"),
            Pattern(
                "Failed to retrieve the dataset. You can avoid",
                r"Failed to retrieve the dataset\. You can avoid this issue by increasing `max_length`",
            ),
            Pattern("is not compatible with `device_map`. n_gpu", r"is not compatible with `device_map`\. n_gpu: \d"),
            Pattern(
                "requires `truncation_strategy 'left' or 'delete'`",
                r"GRPO requires `truncation_strategy 'left' or 'delete'`",
            ),
            Pattern(
                "Please input the training dataset", r"self\.dataset: \[[^\n]{0,80}Please input the training dataset"
            ),
            Pattern(
                "The local path does not exist, dataset_id",
                r"The local path does not exist, dataset_id: `(?P<file>[^`\n]{1,160})`",
            ),
            Pattern(
                "is not an adapter, please try using `--model`",
                r"`(?P<file>[^`\n]{1,160})` is not an adapter, please try using `--model` to pass it",
            ),
            Pattern("Please set --model <model_id_or_path>", r"Please set --model <model_id_or_path>"),
            Pattern(
                "feature requires a flash attention implementation",
                r'The "(?P<setting>\w{1,30})" feature requires a flash attention implementation',
            ),
        ),
        causes=(
            "The command is from the examples of another version: arguments are renamed between versions 2, 3 and 4.",
            "The argument belongs to another command, such as megatron sft, or a backslash is in the wrong place.",
            "All samples are longer than max_length, or the path of the data is wrong.",
        ),
        fixes=(
            Fix(
                "A sample has not the form that the template of the model expects, as the exception above shows:"
                " each one"
                " needs `messages`, and one mark <image> for each of its images.",
                "head -n 1 train.jsonl",
                first_for=("template.encode",),
                hidden_otherwise=True,
            ),
            Fix(
                "Upgrade, and take the examples of the same version.",
                "pip install --upgrade ms-swift",
                first_for=("remaining_argv",),
            ),
            Fix("Show the arguments that this version knows.", "python -m swift.cli.sft --help"),
            Fix(
                "Allow longer samples, or delete those that are too long.",
                "python -m swift.cli.sft --max_length 8192 --truncation_strategy delete",
                first_for=("max_length", "truncation_strategy"),
            ),
            Fix(
                "Start one process per GPU.",
                "NPROC_PER_NODE=2 python -m swift.cli.main sft --deepspeed zero2",
                first_for=("device_map",),
            ),
            Fix(
                "Use flash attention.",
                "python -m swift.cli.sft --attn_impl flash_attn",
                first_for=("requires a flash attention",),
            ),
            Fix(
                "Check the path, from the directory in which the command runs.",
                "ls -l data.jsonl",
                first_for=("local path does not exist", "training dataset", "not an adapter"),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/modelscope/ms-swift/issues/7836",
            "https://github.com/modelscope/ms-swift/issues/5979",
        ),
        said_by="ms-swift 2.6-4.0",
    ),
    KnownError(
        id="axolotl-setting",
        section=SECTION,
        title="Axolotl rejects a setting",
        summary="A key of the configuration is not known to this Axolotl, has a wrong value, or excludes another one.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("for AxolotlInputConfig", r"\d{1,3} validation errors? for (?P<key>AxolotlInputConfig)"),
            Pattern(
                "for AxolotlConfigWCapabilities", r"\d{1,3} validation errors? for (?P<key>AxolotlConfigWCapabilities)"
            ),
            Pattern(
                "unhandled prompt tokenization strategy",
                r"unhandled prompt tokenization strategy: (?P<name>[^\n]{1,80})",
            ),
            Pattern(
                "eval dataset split is too small for sample_packing",
                r"eval dataset split is too small for sample_packing",
            ),
            Pattern(
                "The dataset could not be loaded. This could be",
                r"The dataset could not be loaded\. This could be due to a misconfigured dataset path"
                r" \((?P<file>[^\n)]{1,160})\)",
            ),
            literal("Messages is null. Please check `field_messages`"),
            Pattern(
                "Please set lora_modules_to_save to ",
                r"Please set lora_modules_to_save to \[(?P<name>[^\n\]]{1,120})\] when using an adapter",
            ),
            Pattern(
                "`lora_modules_to_save` not properly set",
                r"`lora_modules_to_save` not properly set when adding new tokens",
            ),
        ),
        causes=(
            "The configuration is from another version: `type: sharegpt` became `type: chat_template`, for example.",
            "The lines below name each key, the values that are allowed, and the one that was given.",
            "New tokens need embeddings that are trained and saved with the adapter.",
        ),
        fixes=(
            Fix("Read the lines below the message: each names a key and what it accepts."),
            Fix(
                "Describe the data by `type: chat_template`, and by `field_messages` for the name of its column.",
                first_for=("prompt tokenization", "field_messages"),
            ),
            Fix(
                "Train and save the embeddings: lora_modules_to_save: [embed_tokens, lm_head].",
                first_for=("lora_modules_to_save",),
            ),
            Fix("Set eval_sample_packing: false, or val_set_size higher.", first_for=("sample_packing",)),
            Fix("Check the path or name of the data set.", "ls -l DATA", first_for=("dataset could not be loaded",)),
            Fix("Upgrade, and start from an example of the same version.", "pip install --upgrade axolotl"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://docs.axolotl.ai/docs/config-reference.html",
            "https://github.com/axolotl-ai-cloud/axolotl/issues/2858",
        ),
        said_by="Axolotl 0.4-0.13",
    ),
    KnownError(
        id="yolo-data-file",
        section=SECTION,
        title="Ultralytics: the file of the data set cannot be used",
        summary="The YAML file, which names the folders of the images and the classes, was not found, or lacks a part.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Error: Dataset '",
                r"Error: Dataset '(?P<file>[^'\n]{1,160})' error (?:❌ )? ?(?P<reason>(?!Dataset ')[^\n]{1,160})",
            ),
            literal("are required in all data YAMLs"),
            Pattern("'names' length ", r"'names' length (?P<names>\d{1,6}) and 'nc: (?P<classes>\d{1,6})' must match"),
            Pattern(".yaml' does not exist", r"FileNotFoundError: '(?P<file>[^'\n]{1,160}\.yaml)' does not exist"),
        ),
        causes=(
            "The path of the file is relative to another folder than the one in which the program was started.",
            "A key is missing or empty: train, val or names; or the indentation of the file is wrong.",
        ),
        fixes=(
            Fix("Compare the file with the example of Ultralytics: path, train, val and names.", "cat data.yaml"),
            Fix(
                "Give the absolute path of the file, or start the program in its folder.",
                "find . -name '*.yaml' -not -path '*/site-packages/*'",
                first_for=("does not exist",),
            ),
            Fix("Remove the line with nc: the number of names counts.", first_for=("'names' length",)),
            Fix(
                "A key has no value, in most cases names: write the classes below it.",
                first_for=("NoneType",),
                hidden_otherwise=True,
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.ultralytics.com/datasets/detect/",),
        said_by="Ultralytics 8.0-8.4",
    ),
)
