"""Errors before and after fine-tuning: the form of the data set, arguments that exclude each other, saving."""

from typing import Final

from gpumon.diagnosis.catalogue.models import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="trl-data",
        section=SECTION,
        title="Data set does not have the form that the trainer expects",
        summary="The trainer takes columns with fixed names, and the data set, its formatting function or the options"
        " of the loss do not fit them.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "A formatting function was provided while",
                r"A formatting function was provided while `?(?P<option>completion_only_loss)",
            ),
            Pattern(
                "pass a `dataset_text_field` or `formatting_func`",
                r"you didn't pass a `dataset_text_field` or `formatting_func` argument",
            ),
            literal("You need to specify either `text` or `text_target`"),
            literal("The input examples must contain either 'messages' for conversational data or 'text'"),
            Pattern(
                "Unexpected input keys in examples", r"Unexpected input keys in examples: (?P<columns>[^\n]{1,120})"
            ),
            Pattern("Invalid keys in the example", r"Invalid keys in the example: (?P<columns>[^\n]{1,120})"),
            Pattern(
                "at least one example has no assistant tokens",
                r"at least one example has no assistant tokens",
            ),
            Pattern("The dataset appears to be vision-related", r"The dataset appears to be vision-related"),
            Pattern(
                "Multimodal training requires conversational prompts",
                r"Multimodal training requires conversational prompts",
            ),
            Pattern("Invalid role in ", r"Invalid role in (?:the last )?message: (?P<role>\S{1,40})"),
        ),
        causes=(
            "The columns have other names than messages, prompt and completion, chosen and rejected, or text.",
            "A formatting function joins prompt and completion, after which nothing separates them.",
            "The chat template does not mark what the assistant says.",
        ),
        fixes=(
            Fix(
                "Give the data set the columns of this trainer, and leave the formatting function out.",
                """\
data = data.map(
    lambda row: {"prompt": row["question"], "completion": row["answer"]}, remove_columns=data.column_names
)
trainer = SFTTrainer(model, args=SFTConfig(output_dir), train_dataset=data)""",
            ),
            Fix("Show what the data set has.", "print(data.column_names, data[0])"),
            Fix(
                "Compute the loss on the entire text.",
                "config = SFTConfig(output_dir, completion_only_loss=False, assistant_only_loss=False)",
                first_for=("no assistant tokens",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://huggingface.co/docs/trl/dataset_formats",),
        said_by="TRL 0.7-1.0, transformers 4.30-5.0",
    ),
    KnownError(
        id="call-arguments",
        section=SECTION,
        title="Arguments of a call exclude each other",
        summary="Two arguments were given of which only one is allowed, or none of those of which one is needed.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("You cannot specify both ", r"Error: You cannot specify both (?P<name>[^\n]{1,60}?) and "),
            Pattern("You cannot use both ", r"Error: You cannot use both (?P<name>[^\n]{1,60}?) and "),
            Pattern(
                "got multiple values for argument '",
                r"TypeError: [\w.]{1,80}\(\) got multiple values for argument '(?P<name>\w{1,40})'",
            ),
            Pattern(
                "You have to specify ",
                r"Error: You have to specify (?!either input_ids or inputs_embeds)(?:either"
                r" )?(?P<name>\w{0,20}input_ids|\w{0,20}inputs?_embeds|pixel_values|"
                r"inputs?|input_\w{1,16})\b",
            ),
            Pattern(
                "You passed ",
                r"Error: You passed (?:both )?(?:a"
                r" )?`(?P<name>(?!PeftModel|packing|inputs_embeds)\w{2,40})[^`\n]{0,20}`",
            ),
            Pattern(
                "You set `",
                r"Error: You set `(?P<name>(?!ignore_mismatched|devices|strategy)\w{2,40})[^`\n]{0,20}`"
                r" (?:both|and|to|as|but)\b",
            ),
        ),
        causes=(
            "A configuration and a single argument say the same thing, or the opposite.",
            "The data has columns of other names than those of the arguments of the model.",
        ),
        fixes=(
            Fix("Remove one of the arguments that the message names, or set the missing one."),
            Fix(
                "Pass tokens under the names of the model; encoder-decoder models make the rest from labels.",
                "outputs = model(input_ids=ids, attention_mask=mask, labels=labels)",
                first_for=("You have to specify",),
            ),
            Fix(
                "An argument without a name took this place, too: pass all of them by name.",
                "trainer = Seq2SeqTrainer(model=model, args=training_args, train_dataset=dataset)",
                first_for=("multiple values",),
                hidden_otherwise=True,
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/huggingface/transformers/blob/main/src/transformers/modeling_utils.py",
            "https://github.com/huggingface/trl/blob/main/trl/trainer/sft_trainer.py",
        ),
        said_by="transformers 4.30-5.0, TRL 0.20-1.0",
    ),
    KnownError(
        id="unsloth-save",
        section=SECTION,
        title="Unsloth could not save or convert the model",
        summary="Training is over; merging the adapter, or converting the model for llama.cpp, failed.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "Unsloth: ",
                r"(?:Error|Exception): (?:\*{3} )?Unsloth: (?P<reason>Saving LoRA finetune failed|Failed compiling"
                r" llama\.cpp|Quantization failed|Conversion failed|GGUF conversion failed|Merge failed|Failed to"
                r" convert|The file '?llama\.cpp/)",
            ),
        ),
        causes=(
            "Unsloth and unsloth_zoo are older than the model or than llama.cpp, which is fetched in its newest state.",
            "The disk is full: merging needs the size of the model in 16 bits, and converting once more.",
            "CMake or a compiler is missing, with which llama.cpp is built.",
        ),
        fixes=(
            Fix(
                "Save the adapter first, so that nothing is lost.",
                'model.save_pretrained("adapter")\ntokenizer.save_pretrained("adapter")',
            ),
            Fix(
                "Upgrade both packages, restart, load the adapter, and save again.",
                "pip install --upgrade --force-reinstall --no-cache-dir --no-deps unsloth unsloth_zoo",
            ),
            Fix("Check the space on the disk.", "df -h . /tmp"),
            Fix(
                "Or merge with PEFT, and convert with llama.cpp.",
                'PeftModel.from_pretrained(base, "adapter").merge_and_unload().save_pretrained("merged")',
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/unslothai/unsloth/blob/main/unsloth/save.py",),
        said_by="Unsloth 2024.8-2026.8",
    ),
)
