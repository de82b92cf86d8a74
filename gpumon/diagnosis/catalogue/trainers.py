"""Errors of what trainers add for several GPUs: Accelerate, its versions, and random states of checkpoints."""

from typing import Final

from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Trainers"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="accelerate-prepare",
        section=SECTION,
        title="Accelerate: model and optimizer were not prepared together",
        summary="With this kind of parallelism, Accelerate must see the model and its optimizer in one call.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("When using FSDP2, a model and optimizer must be passed together"),
            Pattern(
                "model and an optimizer together to `accelerate",
                r"You must pass a model and an optimizer together to `accelerate\.prepare",
            ),
            literal("Only one model is supported when using FSDP2"),
            literal("FSDP2 preparation should be done via `accelerate.prepare()`"),
            literal("instance with multiple models when using DeepSpeed"),
            literal("The model and the optimizer parameters are not on the same device"),
            Pattern(
                "'Accelerator' object has no", r"'Accelerator' object has no attribute '(?P<name>deepspeed_\w{1,40})'"
            ),
            Pattern(
                "' object has no attribute '",
                r"'Dummy(?:Optim|Scheduler)' object has no attribute '(?P<name>\w{1,40})'",
            ),
        ),
        causes=(
            "The model alone is prepared, as for an evaluation before training.",
            "A DummyOptim stands in for an optimizer of DeepSpeed, and DeepSpeed is not in use.",
        ),
        fixes=(
            Fix(
                "Prepare everything in one call.",
                "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
            ),
            Fix(
                "Upgrade both libraries, in which several of these cases are fixed.",
                "pip install --upgrade accelerate transformers trl",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/huggingface/transformers/issues/39961",
            "https://github.com/huggingface/trl/issues/2329",
        ),
        said_by="accelerate 0.25-1.12",
    ),
    KnownError(
        id="accelerate-state",
        section=SECTION,
        title="Accelerate was not initialized in this process, or too late",
        summary="A function needs the Accelerator of the process, which is missing, was reset, or came after CUDA.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("Please make sure to properly initialize your accelerator via `accelerator = Accelerator()`"),
            literal("the `Accelerator` should only be initialized inside your training function"),
            literal("You must initialize the accelerate state by calling either `PartialState()` or `Accelerator()`"),
            literal("The `PartialState` or `Accelerator` must be initialized before calling this function"),
            Pattern(
                "State` object has no attribute",
                r"`(?:Accelerator|Partial)State` object has no attribute `(?P<name>\w{1,40})`",
            ),
            Pattern(
                "'PartialState' object has no attribute", r"'PartialState' object has no attribute '(?P<name>\w{1,40})'"
            ),
            literal("has been initialized before the `notebook_launcher` could create a forked subprocess"),
            literal("likely stems from an outside import causing issues once the `notebook_launcher()` is called"),
        ),
        causes=(
            "The logger of accelerate, or a function such as gather, is used before the Accelerator is created.",
            "A library created or reset the state of Accelerate, such as for a second trainer.",
            "In a notebook, a cell used CUDA or created the Accelerator before the launcher.",
        ),
        fixes=(
            Fix(
                "Create the Accelerator first in the function that each process runs.",
                "accelerator = accelerate.Accelerator()",
            ),
            Fix(
                "In a notebook, restart the kernel, and use CUDA only inside the function that is launched.",
                "accelerate.notebook_launcher(train, num_processes=2)",
                first_for=("notebook",),
            ),
            Fix("Upgrade the packages together.", "pip install --upgrade accelerate transformers trl"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://huggingface.co/docs/accelerate/basic_tutorials/notebook",
            "https://github.com/huggingface/transformers/issues/39961",
        ),
        said_by="accelerate 0.25-1.15",
    ),
    KnownError(
        id="accelerate-config",
        section=SECTION,
        title="Accelerate cannot use its configuration",
        summary="The file or the options of accelerate launch name what does not exist or contradict each other.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("must be specified in the config file", r"A `\w{1,40}` must be specified in the config file"),
            Pattern(
                "had unknown keys",
                r"The config file at (?P<path>[^\n]{1,200}?) had unknown keys \((?P<name>[^)\n]{1,160})",
            ),
            Pattern(
                "The passed configuration file `",
                r"The passed configuration file `(?P<path>[^`\n]{1,200})` does not exist",
            ),
            Pattern("You can only use one of `--", r"You can only use one of `--cpu`, `--multi_gpu`"),
            literal("You need to manually pass in `--num_processes` using this config yaml"),
            Pattern("Unknown mixed_precision mode", r"Unknown mixed_precision mode: (?P<name>[^\n.]{1,20})"),
            Pattern("`mixed_precision` should be one of", r"`mixed_precision` should be one of 'no', 'fp16'"),
            Pattern("Unknown dynamo backend", r"Unknown dynamo backend: (?P<name>[^\n.]{1,30})"),
            Pattern("Invalid auto wrap policy", r"Invalid auto wrap policy: (?P<name>[^\n.]{1,60})"),
            literal("You cannot use `--use_parallelism_config` without"),
            literal("FSDP2 does not support LOCAL_STATE_DICT"),
            literal("forward_prefetch is not yet implemented in FSDP2"),
            Pattern(
                "reshard_after_forward set to ",
                r"reshard_after_forward set to (?P<name>\w{1,30})\. This is not supported with FSDP",
            ),
            Pattern(
                "flag to `True` so that model states",
                r"Set the `sync_module_states` flag to `True` so that model states",
            ),
            Pattern(
                "fsdp_cpu_ram_efficient_loading` set", r"using `--fsdp_cpu_ram_efficient_loading` set `--fsdp_sync"
            ),
            Pattern(
                "the following accelerate config variables",
                r"When using `deepspeed_config_file`, the following accelerate config variables",
            ),
        ),
        causes=(
            "The file was written by another version of accelerate, or by hand.",
            "An option of FSDP1 is used with FSDP2, or the reverse.",
        ),
        fixes=(
            Fix("Show what accelerate reads, and its version.", "accelerate env"),
            Fix("Write the configuration again.", "accelerate config"),
            Fix(
                "Translate a configuration of FSDP1.",
                "accelerate to-fsdp2 --config_file fsdp1.yaml --output_file fsdp2.yaml",
                first_for=("FSDP2", "reshard_after_forward"),
            ),
            Fix(
                "Or name everything on the command line.",
                "accelerate launch --num_processes 8 --num_machines 1 --mixed_precision bf16 train.py",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://huggingface.co/docs/accelerate/package_reference/cli",),
        said_by="accelerate 0.25-1.15",
    ),
    KnownError(
        id="accelerate-gather",
        section=SECTION,
        title="Accelerate cannot gather or distribute these values",
        summary="What is gathered or split is not a tensor on the GPU, or differs between the ranks.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "One or more of the tensors passed to",
                r"One or more of the tensors passed to (?P<name>[\w.]{1,60}) were not on the",
            ),
            Pattern(
                "Unsupported types (", r"Unsupported types \((?P<type>[^)\n]{1,60})\) passed to `(?P<name>\w{1,40})`"
            ),
            Pattern("Can only concatenate tensors", r"Can only concatenate tensors but got"),
            Pattern("Can only find the batch size of", r"Can only find the batch size of tensors"),
            Pattern("Cannot find the batch size from", r"Cannot find the batch size from empty"),
            Pattern(
                "Error found while calling `",
                r"Error found while calling `(?P<name>\w{1,40})`\. Please see the earlier error",
            ),
            literal("You can't use batches of different size with `dispatch_batches=True`"),
            Pattern("Batch does not contain any data", r"Batch does not contain any data"),
        ),
        causes=(
            "A metric or a list of strings is gathered as if it were a tensor.",
            "The tensor is still on the CPU.",
            "An iterable dataset gives batches of different sizes, which the main process cannot cut.",
        ),
        fixes=(
            Fix(
                "Gather tensors on the GPU of the process.",
                "values = accelerator.gather(values.to(accelerator.device))",
            ),
            Fix(
                "Gather other objects with the function for them.",
                "values = accelerate.utils.gather_object(values)",
                first_for=("Unsupported types", "concatenate"),
            ),
            Fix(
                "Let every process read its own part of an iterable dataset.",
                "accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(dispatch_batches=False))",
                first_for=("dispatch_batches", "batch size", "any data"),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://huggingface.co/docs/accelerate/package_reference/utilities",),
        said_by="accelerate 0.25-1.15",
    ),
    KnownError(
        id="no-batch-size",
        section=SECTION,
        title="No batch fits into memory",
        summary="The batch was made smaller after each out-of-memory, down to nothing: even one sample does not fit.",
        context=ContextState.ALIVE,
        patterns=(literal("No executable batch size found, reached zero"),),
        causes=(
            "The model, its optimizer or one long sample needs more memory than the GPU has free.",
            "Another error was taken for an out-of-memory, such as one of cuDNN; the log shows the first one.",
        ),
        fixes=(
            Fix("Check what else holds memory of the GPU.", "nvidia-smi"),
            Fix("Recompute activations.", "model.gradient_checkpointing_enable()"),
            Fix("Shorten the samples, train an adapter, or use an optimizer with 8-bit states."),
            Fix("Turn the search off, to see the first error.", "TrainingArguments(auto_find_batch_size=False)"),
        ),
        empty_cache="Little effect: the function empties the cache before each attempt.",
        sources=("https://huggingface.co/docs/accelerate/package_reference/utilities",),
        said_by="accelerate 0.18-1.15",
    ),
    KnownError(
        id="trainer-versions",
        section=SECTION,
        title="Trainer, Accelerate and DeepSpeed do not fit together",
        summary="One of the packages uses an attribute that the installed version of another does not have.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "' object has no attribute '",
                r"'(?P<name>DeepSpeedZeroOptimizer(?:_Stage3)?|Accelerated(?:Optimizer|Scheduler)|Hf\w{0,10}DeepSpeedConfig"
                r"|DeepSpeedPlugin|FullyShardedDataParallelPlugin|DeepSpeedEngineWrapper)' object has no attribute"
                r" '(?P<attribute>(?!ipg_)\w{1,60})'",
            ),
            Pattern(
                "type object '",
                r"type object '(?P<name>DeepSpeedPlugin|FullyShardedDataParallelPlugin|DistributedType|PartialState)'"
                r" has no attribute '(?P<attribute>\w{1,60})'",
            ),
            Pattern("vp_stage must be ", r"vp_stage must be (?:a kwarg in|passed if|provided if) (?P<name>\w{1,60})"),
        ),
        causes=(
            "One of transformers, accelerate, deepspeed and peft was upgraded alone.",
            "The program was written for older versions of them.",
        ),
        fixes=(
            Fix("Upgrade them together.", "pip install --upgrade transformers accelerate deepspeed peft"),
            Fix(
                "Or install the versions that the program was written for.",
                "pip install -r requirements.txt",
            ),
            Fix(
                "Show the versions that are installed.",
                "pip list | grep -i -E 'transformers|accelerate|deepspeed|peft|torch'",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/huggingface/transformers/issues/39081",
            "https://github.com/hiyouga/LlamaFactory/issues/5400",
        ),
        said_by="transformers 4.44-5.0, accelerate 0.27-1.12, DeepSpeed 0.14-0.18",
    ),
    KnownError(
        id="random-state-devices",
        section=SECTION,
        title="Random state of a GPU that is not there",
        summary="The program restores or reads the random state of more GPUs than this process sees.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "torch.cuda.default_generators[", r"default_generator = torch\.cuda\.default_generators\[\w{1,10}\]"
            ),
        ),
        causes=("The checkpoint was saved by a process that saw more GPUs, and its random states are restored.",),
        fixes=(
            Fix(
                "Resume with as many GPUs per process as it was saved with.",
                "echo $CUDA_VISIBLE_DEVICES; nvidia-smi -L",
            ),
            Fix(
                "Or restore only the states of the GPUs that there are.",
                'torch.cuda.set_rng_state_all(checkpoint["cuda_rng_state"][: torch.cuda.device_count()])',
            ),
            Fix("Or remove the file of random states from the checkpoint.", "rm checkpoint-500/rng_state*.pth"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/huggingface/transformers/issues/14554",
            "https://github.com/NVlabs/Sana/issues/92",
        ),
        said_by="torch 1.7-2.13",
    ),
)
