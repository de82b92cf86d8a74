"""Errors of data sets: loading, converting and passing them to the trainer."""

from typing import Final

from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Data sets and tokenizers"

_LOADING: Final = "https://huggingface.co/docs/datasets/loading"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="dataset-worker-died",
        section=SECTION,
        title="Process that prepares the data set died",
        summary="One of the processes of Dataset.map() ended without an exception: it was killed, or it crashed.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("One of the subprocesses has abruptly died during map operation"),
            Pattern("Unsloth: Process crashed", r"Unsloth: Process crashed: (?P<reason>[^\n]{1,120})"),
        ),
        causes=(
            "Host memory ran out: each process holds its part of the data, images above all, and its own Python.",
            "On Windows and in notebooks, each process imports the program again.",
            "A library crashed in the process that was forked from one with threads or with CUDA.",
        ),
        fixes=(
            Fix(
                "Prepare the data with fewer processes, or in this one.", "dataset = dataset.map(function, num_proc=1)"
            ),
            Fix("Check whether the kernel killed a process.", "sudo dmesg -T | grep -i -E 'out of memory|oom-kill'"),
            Fix(
                "Write smaller parts to disk while preparing.",
                "dataset = dataset.map(function, num_proc=2, writer_batch_size=100)",
            ),
            Fix(
                "On Windows, start the program below the main guard.",
                'if __name__ == "__main__":\n    main()',
            ),
        ),
        empty_cache="No effect: the memory is the host's.",
        sources=("https://github.com/huggingface/datasets/blob/main/src/datasets/utils/py_utils.py",),
        said_by="datasets 2.10-4.0, Unsloth 2025-2026",
        is_echo=True,
    ),
    KnownError(
        id="dataset-generation",
        section=SECTION,
        title="Files of the data set do not fit together",
        summary="A file of the data set cannot be read, or has other columns or types than the files before it.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("An error occurred while generating the dataset"),
            literal("All the data files must have the same columns, but at some point"),
            Pattern("Couldn't cast", r"(?:CastError|TypeError|ValueError): Couldn't cast(?: array of type)?\b"),
            Pattern(
                " expected length ",
                r"Column \d{1,5} named (?P<column>[^\n]{1,80}?) expected length (?P<expected>\d{1,12}) but got length"
                r" (?P<got>\d{1,12})",
            ),
            Pattern(
                "ould not open Parquet input source",
                r"Could not open Parquet input source '[^'\n]{1,200}': (?P<reason>Parquet [^\n]{1,80})",
            ),
            Pattern(
                "Parquet magic bytes not found",
                r"(?:ArrowInvalid|Error): (?P<reason>Parquet magic bytes not"
                r" found)",
            ),
            Pattern(
                "Nested data conversions not implemented",
                r"(?P<reason>Nested data conversions not implemented) for chunked",
            ),
            Pattern("JSON parse error: ", r"JSON parse error: (?P<reason>[^\n]{1,120})"),
            Pattern(
                "cannot mix list and non-list",
                r"ArrowInvalid: \(?[^\n]{0,60}cannot mix (?P<reason>list and non-list, non-null values)",
            ),
        ),
        causes=(
            "A row has another type than the rows before it: a number in place of text, a list in place of one value.",
            "Some files have more columns than others, or a file is empty, damaged or not valid JSON.",
            "A function of map() with batched=True returns more or fewer rows, and the old columns were kept.",
        ),
        fixes=(
            Fix("Read the exception above this one: it names the file, the column or the type."),
            Fix(
                "If map() changes the number of rows, remove the old columns.",
                "dataset = dataset.map(function, batched=True, remove_columns=dataset.column_names)",
                first_for=("expected length",),
            ),
            Fix(
                "A file of the data is empty, cut off, or only the pointer of Git LFS: download it again.",
                "hf download OWNER/DATASET --repo-type dataset --local-dir data --force-download",
                first_for=("Parquet magic bytes", "Parquet file size"),
                hidden_otherwise=True,
            ),
            Fix(
                "A group of rows has more than 2 GiB of nested values, which Arrow cannot join: write the file again"
                " with fewer rows in each group.",
                'dataset.to_parquet("train.parquet", batch_size=100)',
                first_for=("Nested data conversions",),
                hidden_otherwise=True,
            ),
            Fix(
                "Name the files that belong together, or give the types.",
                'dataset = load_dataset("json", data_files=["train.jsonl"], features=features)',
            ),
            Fix(
                "After a change of the files, discard what was cached.",
                'dataset = load_dataset(name, download_mode="force_redownload")',
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_LOADING,),
        said_by="datasets 2.14-4.0, pyarrow 10-21",
    ),
    KnownError(
        id="dataset-not-found",
        section=SECTION,
        title="Data set is not found",
        summary="No data set of this name exists on the Hub for this account, and no files at this place.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "doesn't exist on the Hub or cannot be accessed",
                r"Dataset '(?P<dataset>[^'\n]{1,120})' doesn't exist on the Hub or cannot be accessed",
            ),
            Pattern(
                "is a gated dataset on the Hub", r"Dataset '(?P<dataset>[^'\n]{1,120})' is a gated dataset on the Hub"
            ),
            Pattern(
                "No (supported) data files found", r"No \(supported\) data files found(?: in (?P<dataset>\S{1,120}))?"
            ),
            Pattern(
                "Couldn't find any data file at ",
                r"Couldn't find any data file at (?P<dataset>[^\n]{1,160}?)(?:\.$|\. |$)",
            ),
            Pattern(
                "doesn't contain any data files",
                r"\bdirectory at (?P<dataset>\S{1,160}) doesn't contain any data files",
            ),
            Pattern("Couldn't reach '", r"Couldn't reach '(?P<dataset>[\w./-]{1,120})' on the Hub"),
            Pattern("Unable to find '", r"FileNotFoundError: Unable to find '(?P<dataset>[^'\n]{1,200})'"),
        ),
        causes=(
            "The name has a typing error, or the path is relative to another folder.",
            "The data set is private or gated, and no token was given.",
            "The host has no way to the Hub.",
        ),
        fixes=(
            Fix("For local files, check the path on this host.", "ls -l DATA"),
            Fix(
                "Load local files with their format.", 'dataset = load_dataset("json", data_files="/data/train.jsonl")'
            ),
            Fix(
                "For a gated data set, accept its conditions on its page, then log in.",
                "hf auth login",
                first_for=("gated",),
            ),
            Fix(
                "Download it on a host with internet.",
                "hf download --repo-type dataset NAME/DATASET",
                first_for=("Couldn't reach",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_LOADING,),
        said_by="datasets 2.14-4.0",
    ),
    KnownError(
        id="dataset-version",
        section=SECTION,
        title="Data set needs another version of the library",
        summary="The data set was written for an older or a newer version of the package datasets than the"
        " installed one.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("Loading a dataset cached in a LocalFileSystem is not supported"),
            literal("Invalid pattern: '**' can only be an entire path component"),
            Pattern(
                "Dataset scripts are no longer supported",
                r"Dataset scripts are no longer supported, but found (?P<script>[\w.-]{1,80})",
            ),
            Pattern(
                "Available feature types: [",
                r"Feature type '(?P<feature>\w{1,30})' not found\. Available feature types: \[",
            ),
            Pattern(
                "trust_remote_code",
                r"`trust_remote_code` is not supported anymore\.|load_dataset\(\) got an unexpected"
                r" keyword argument 'trust_remote_code'",
            ),
        ),
        causes=(
            "Since version 4, datasets no longer runs scripts of data sets.",
            "The feature `List` exists since version 4: a data set that was saved by it cannot be read by older ones.",
        ),
        fixes=(
            Fix("If a feature type is not found, upgrade.", "pip install --upgrade datasets"),
            Fix(
                "If the data set has a script, use its converted files if it has them.",
                'dataset = load_dataset(name, revision="refs/convert/parquet")',
                first_for=("scripts are no longer",),
            ),
            Fix("Or, for a script that you trust, install the last version that runs it.", 'pip install "datasets<4"'),
            Fix(
                "Leave the argument out.",
                "dataset = load_dataset(name)",
                first_for=("`trust_remote_code`", "'trust_remote_code'"),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/huggingface/datasets/releases/tag/4.0.0",),
        said_by="datasets 2.14-4.0",
    ),
    KnownError(
        id="dataset-columns",
        section=SECTION,
        title="Data set has not what the model needs",
        summary="The columns of the data set are not those that the model's forward() takes, or the labels are"
        " missing.",
        context=ContextState.ALIVE,
        patterns=(
            literal("No columns in the dataset match the model's forward method signature"),
            Pattern(
                "did not return a loss from the inputs",
                r"The model did not return a loss from the inputs, only the following keys: (?P<keys>[\w,]{1,120})",
            ),
            literal("The batch received was empty, your model won't be able to train on it"),
            literal("You have to specify either input_ids or inputs_embeds"),
            Pattern(
                "token_type_ids` is required as", r"`(?P<name>\w{0,3}token_type_ids)` is required as a model input"
            ),
            Pattern(
                "that includes input_ids, but you provided",
                r"that includes input_ids, but you provided"
                r" \[(?P<keys>[^\]\n]{0,120})",
            ),
            Pattern(
                "You must specify exactly one of input_ids",
                r"You must specify exactly one of input_ids or inputs_embeds",
            ),
        ),
        causes=(
            "The data set was not tokenized: it has the text, and no input_ids.",
            "The labels have another name than `labels`, or the data collator does not add them.",
            "The trainer removes columns that forward() does not name, as behind an adapter or a wrapper.",
        ),
        fixes=(
            Fix("Print the columns before training.", "print(trainer.train_dataset[0].keys())"),
            Fix(
                "Tokenize the data set before the function that needs input_ids.",
                'dataset = dataset.map(lambda row: tokenizer(row["text"], truncation=True, max_length=2048))',
            ),
            Fix(
                "Rename the column with the targets.",
                'dataset = dataset.rename_column("label", "labels")',
                first_for=("not return a loss",),
            ),
            Fix(
                "For a language model, let the collator make the labels.",
                "collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)",
            ),
            Fix(
                "If a collator or a wrapper needs the other columns, keep them.",
                "arguments = TrainingArguments(output_dir, remove_unused_columns=False)",
            ),
            Fix(
                "Upgrade transformers to 5.6 or later, which trains Gemma 3 without token_type_ids; or let tokenizers"
                " return them, and keep the column.",
                "pip install --upgrade 'transformers>=5.6'",
                first_for=("token_type_ids` is required",),
            ),
            Fix(
                "Each example is longer than the limit, or could not be read: raise the limit, and check the data set.",
                "export NPROC_PER_NODE=8\nswift sft --max_length 8192 --truncation_strategy delete --strict true",
                first_for=("swift",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://huggingface.co/docs/transformers/main_classes/trainer",),
        said_by="transformers 4.30-5.0",
    ),
    KnownError(
        id="dataset-empty",
        section=SECTION,
        title="Trainer received no data",
        summary="No example is left to train on: none was found, or each was filtered out.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("Make sure that your dataset has enough samples to at least yield one packed sequence"),
            Pattern(
                "the resulting train set will be empty",
                r"n_samples=\d{1,9},[^\n]{1,80} the resulting train set will be"
                r" empty",
            ),
            Pattern(
                "masked every label to -100",
                r"train_on_responses_only masked every label to -100 in (?P<dataset>\w{1,40})",
            ),
            Pattern(
                "All labels in your dataset are -100",
                r"All labels in your dataset are -100\. Training losses will be all 0",
            ),
            Pattern(
                "tokenization mismatch: ",
                r"tokenization mismatch: (?P<length>\d{1,6}) vs\. (?P<tokens>\d{1,6})\. \(ignored\)",
            ),
            Pattern(
                "Cannot find valid samples", r"Cannot find valid samples, check `data/README\.md` for the data format"
            ),
            literal("Cannot find sufficient samples, consider increasing dataset size"),
            Pattern("requires a train_dataset", r"Trainer: training requires a train_dataset"),
            Pattern("`train_dataset` is required", r"ValueError: `train_dataset` is required"),
            literal("No data found. Please verify arguments"),
            Pattern(
                "images not found",
                r"Dataset '(?P<dataset>[^'\n]{1,160})' images not found(?:, missing path '(?P<path>[^'\n]{1,"
                r"200})')?",
            ),
            Pattern(
                "Error loading data from ",
                r"FileNotFoundError: \S{0,20} ?Error loading data from (?P<path>[^\n]{1,160})",
            ),
            Pattern("No labels found in ", r"ValueError: \S{0,20} ?No labels found in (?P<path>\S{1,160})"),
        ),
        causes=(
            "The path or the structure of the folders is not the one that the program expects.",
            "The markers of the answers are not those of the chat template, so that nothing is left to learn.",
            "Each example is longer than the limit, so that the part with the answer is cut off.",
        ),
        fixes=(
            Fix("Check the number of examples, and look at the first one.", "print(len(dataset), dataset[0])"),
            Fix(
                "Compare the markers with the text that the chat template makes.",
                "print(tokenizer.decode(trainer.train_dataset[0]['input_ids']))",
            ),
            Fix("Raise the maximum length above that of the examples."),
            Fix(
                "For the scripts of kohya, give the parent folder; the images are in a folder such as 10_name.",
                "ls -R TRAIN_DATA_DIR | head",
            ),
            Fix(
                "For Ultralytics, write absolute paths in the file of the data set.",
                "cat data.yaml",
                first_for=("missing path",),
            ),
            Fix(
                "Compare the keys and roles of the samples with the columns and tags that dataset_info.json names:"
                " samples of another form are left out, as are those without an answer.",
                "head -c 600 data/train.json; cat data/dataset_info.json",
                first_for=("Cannot find valid samples",),
            ),
            Fix(
                "Turn packing off, or shorten the sequences: all texts together are shorter than one of them.",
                "config = SFTConfig(output_dir, packing=False, max_length=1024)",
                first_for=("one packed sequence",),
            ),
            Fix(
                "LLaVA masks every label of these examples: use the template of this model, and LLaVA's transformers.",
                "python llava/train/train.py --version v1; grep -n -E 'transformers|tokenizers' LLaVA/pyproject.toml",
                first_for=("tokenization mismatch",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.ultralytics.com/datasets/detect/",),
        said_by="Unsloth 2025-2026, LLaMA-Factory 0.9, TRL 0.20-1.0, sd-scripts 0.8-0.9, Ultralytics 8.0-8.4",
    ),
)
