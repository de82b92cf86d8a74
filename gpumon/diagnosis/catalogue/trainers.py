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
            literal("Please make sure to properly initialize your accelerator via `accelerator = Accelerator()`"),
            literal("the `Accelerator` should only be initialized inside your training function"),
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
            "An Accelerator is created in the wrong place or order, by a library or in the main process of a notebook.",
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
            Fix(
                "Create the Accelerator first in the function that each process runs.",
                "accelerator = accelerate.Accelerator()",
                first_for=("properly initialize", "notebook"),
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
