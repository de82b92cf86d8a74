"""Errors of Lightning's strategies: how processes are started, how the model is divided, and its checkpoints."""

from typing import Final

from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Lightning"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="lightning-strategy",
        section=SECTION,
        title="Lightning: strategy does not fit these settings",
        summary="The strategy, the accelerator, the precision or the plugins exclude each other.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "but process forking",
                r"You selected `\w{1,10}\(strategy='(?P<strategy>\w{1,40})'\)` but process forking",
            ),
            literal("You selected the FSDP strategy but FSDP is only available on GPU"),
            Pattern(
                "requires a GPU accelerator, but",
                r"The strategy `(?P<strategy>\w{1,40})` requires a GPU accelerator, but",
            ),
            Pattern(
                "strategy is only supported on CUDA GPUs",
                r"The (?P<strategy>\w{1,20}) strategy is only supported on CUDA GPUs",
            ),
            Pattern(
                "strategies from the DDP family are",
                r"You set `strategy=(?P<strategy>[^`\n]{1,40})` but strategies from the DDP family are",
            ),
            literal("The `ModelParallelStrategy` does not support `Fabric(..., precision="),
            Pattern("Received both `precision=", r"Received both `precision=[^\n]{1,60}` and `plugins="),
            Pattern(
                "is not supported in ",
                r"`precision=[^`\n]{1,30}`? is not supported in (?P<strategy>FSDP|DeepSpeed)\. `precision` must be",
            ),
            Pattern(
                "strategy can only work with the `",
                r"The (?P<strategy>\w{1,10}) strategy can only work with the `\w{1,40}` plugin",
            ),
            literal("The hybrid sharding strategy requires you to pass at least one of the parameters"),
            Pattern(
                "is not a valid choice with `DeepSpeed",
                r"`empty_init=\w{1,8}` is not a valid choice with `DeepSpeedStrategy`",
            ),
            literal("you are required to override the `configure_model()` hook in the LightningModule"),
            Pattern(
                "spawn processes with the `",
                r"spawn processes with the `(?P<strategy>\w{1,30})` strategy, `\.launch\(\)` needs to be",
            ),
        ),
        causes=(
            "FSDP or DeepSpeed was chosen, and the program runs on the CPU, as when no GPU is visible.",
            "The precision is given in a form that another strategy uses.",
        ),
        fixes=(
            Fix("Check that the program sees the GPUs.", "python -c 'import torch; print(torch.cuda.device_count())'"),
            Fix(
                "Name all of them together.",
                'trainer = L.Trainer(accelerator="gpu", devices=8, strategy="fsdp", precision="bf16-true")',
            ),
            Fix(
                "Where processes cannot be forked, start the script with torchrun or with strategy ddp.",
                'trainer = L.Trainer(strategy="ddp", devices=2)',
                first_for=("forking",),
            ),
            Fix(
                "Create the model inside configure_model, in which Lightning divides it.",
                first_for=("configure_model",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://lightning.ai/docs/pytorch/stable/advanced/model_parallel/fsdp.html",),
        said_by="Lightning 2.0-2.6",
    ),
    KnownError(
        id="lightning-launch",
        section=SECTION,
        title="Lightning: processes were not started as it expects",
        summary="Lightning starts or finds one process per GPU, and ranks or devices are not those that it expects.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("Lightning attempted to launch new distributed processes with `local_rank > 0`"),
            literal("The launcher can only create subprocesses once"),
            Pattern(
                "don't match the local rank",
                r"The selected device indices (?P<devices>\[[\d, ]{1,60}\]) don't match the local rank",
            ),
            Pattern(
                "Calling `trainer.fit()` twice",
                r"Calling `trainer\.fit\(\)` twice on the same Trainer instance using a spawn",
            ),
            literal("Accessing the device mesh before processes have initialized is not allowed"),
        ),
        causes=(
            "LOCAL_RANK is set in the environment by another launcher or scheduler, and not for each process.",
            "The GPUs are chosen by their index in the trainer, which DeepSpeed does not support.",
        ),
        fixes=(
            Fix("Look at what is set.", "env | grep -E 'RANK|WORLD_SIZE|SLURM_(NTASKS|LOCALID|PROCID)|CUDA_VISIBLE'"),
            Fix("Without a launcher, unset it.", "env -u LOCAL_RANK -u RANK -u WORLD_SIZE python train.py"),
            Fix(
                "Choose GPUs outside of the program.",
                "CUDA_VISIBLE_DEVICES=2,3 python train.py",
                first_for=("device indices",),
            ),
            Fix("Create a new Trainer for each run of fit.", first_for=("twice",)),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://lightning.ai/docs/pytorch/stable/clouds/cluster_advanced.html",),
        said_by="Lightning 2.0-2.6",
    ),
    KnownError(
        id="lightning-checkpoint",
        section=SECTION,
        title="Lightning: checkpoint of a divided model does not fit",
        summary="FSDP and DeepSpeed save a folder of parts; the path or the content is not what the strategy expects.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "does not point to a valid checkpoint",
                r"The path '?(?P<path>[^\n']{1,200}?)'? does not point to a valid checkpoint",
            ),
            Pattern(
                "The provided path is not a valid",
                r"The provided path is not a valid (?:DeepSpeed )?checkpoint: (?P<path>[^\n]{1,200}?)(?:\.|$)",
            ),
            literal("DeepSpeed was unable to load the checkpoint. Ensure you passed in"),
            Pattern(
                "in the provided checkpoint state",
                r"Could not find a (?P<kind>\w{1,12}) model in the provided checkpoint state",
            ),
            Pattern(
                " in the given state. ",
                r"Found multiple \w{1,12} (?:models|engine modules) in the given state\. \w{6,7} ",
            ),
            Pattern(
                "but the checkpoint contains", r"You have configured \d{1,4} optimizers but the checkpoint contains"
            ),
            literal("The checkpoint path exists and is a directory"),
        ),
        causes=(
            "The path names a file inside of the folder, or one of its parts.",
            "The checkpoint was saved with another strategy or with other optimizers.",
        ),
        fixes=(
            Fix(
                "Look at what the checkpoint is: a file, or a folder with parts.",
                "ls -l lightning_logs/version_0/checkpoints/*",
            ),
            Fix("Give the path of the folder itself.", 'trainer.fit(model, ckpt_path="checkpoints/last.ckpt")'),
            Fix(
                "Join the parts into one file, for another strategy.",
                "python -m lightning.pytorch.utilities.consolidate_checkpoint checkpoints/last.ckpt",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://lightning.ai/docs/pytorch/stable/common/checkpointing_expert.html",),
        said_by="Lightning 2.1-2.6",
    ),
    KnownError(
        id="lightning-gradients",
        section=SECTION,
        title="Lightning: optimizer or clipping does not work with this strategy",
        summary="The strategy clips gradients or steps in its own way, and the optimizer was not made for that.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("The optimizer does not seem to reference any FSDP parameters"),
            literal("Gradient clipping with FSDP is only possible if the module passed to"),
            literal("Gradient clipping is not implemented for optimizers handling the unscaling"),
            literal("DeepSpeed handles gradient clipping automatically within the optimizer"),
            literal("Currently only one optimizer is supported with DeepSpeed"),
            literal("AMP and the LBFGS optimizer are not compatible"),
        ),
        causes=(
            "The optimizer was created before the model was divided.",
            "Gradients are clipped by hand, or by value, where the strategy supports only the norm.",
        ),
        fixes=(
            Fix(
                "Create the optimizer from the parameters of the divided model.",
                "def configure_optimizers(self):\n    return torch.optim.AdamW(self.parameters(), lr=1e-4)",
            ),
            Fix(
                "Let the strategy clip.",
                'DeepSpeedStrategy(config={"gradient_clipping": 1.0})',
                first_for=("DeepSpeed handles",),
            ),
            Fix(
                "Let the trainer clip the norm.",
                'trainer = L.Trainer(gradient_clip_val=1.0, gradient_clip_algorithm="norm")',
                first_for=("clipping with FSDP", "unscaling"),
            ),
            Fix("Join the groups of parameters in one optimizer.", first_for=("only one optimizer",)),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://lightning.ai/docs/pytorch/stable/advanced/model_parallel/deepspeed.html",),
        said_by="Lightning 2.0-2.6",
    ),
)
