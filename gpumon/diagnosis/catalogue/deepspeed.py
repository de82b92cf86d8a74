"""Errors of DeepSpeed: its operators, settings, checkpoints and optimizer.

The wordings are from its sources of 2026 and reports.
"""

from typing import Final

from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "DeepSpeed"

_DEEPSPEED: Final = "https://www.deepspeed.ai/docs/config-json/"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="deepspeed-op",
        section=SECTION,
        title="DeepSpeed cannot build an operator",
        summary=(
            "DeepSpeed compiles its optimizers at first use, and the compiler, the CUDA toolkit or ninja is missing."
        ),
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Unable to JIT load the ",
                r"Unable to JIT load the (?P<operator>\w{1,60}) op due to (?P<reason>[^\n]{1,120})",
            ),
            literal("CUDA_HOME does not exist, unable to compile CUDA op(s)"),
            Pattern("Unable to pre-compile ", r"AssertionError: Unable to pre-compile (?P<operator>\w{1,40})"),
            Pattern("'deepspeed.ops.", r"No module named 'deepspeed\.ops\.[\w.]{1,40}?\.(?P<operator>\w{1,30}_op)'"),
            Pattern(
                ".so: cannot open shared object file",
                r"/(?P<operator>cpu_adam|fused_adam|cpu_adagrad|cpu_lion|async_io|utils|transformer_inference)/\w"
                r"{1,30}\.so:"
                r" cannot open shared object file",
            ),
            Pattern(
                "object has no attribute 'ds_opt_adam'", r"'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'"
            ),
            Pattern("CUTLASS_PATH environment variable is not set", r"CUTLASS_PATH environment variable is not set"),
            Pattern("CUTLASS location directory", r"Please specify CUTLASS location directory as environment variable"),
        ),
        causes=(
            "CUDA_HOME is not set, or there is no nvcc: the wheels of PyTorch contain none.",
            "The toolkit's version differs from torch.version.cuda; an earlier message reports that.",
            (
                "Attribute ds_opt_adam: printed while the optimizer that could not be built is deleted; the cause"
                " stands above."
            ),
        ),
        fixes=(
            Fix("Show what DeepSpeed can build here, and what is missing.", "ds_report"),
            Fix(
                "Install ninja, a compiler, and the CUDA toolkit of torch.version.cuda.",
                "pip install ninja && conda install -c nvidia cuda-nvcc gxx_linux-64",
            ),
            Fix(
                "If the toolkit differs only in its minor version, skip the check.",
                "DS_SKIP_CUDA_CHECK=1 deepspeed train.py",
            ),
            Fix("Delete operators that were built for another PyTorch.", "rm -rf ~/.cache/torch_extensions"),
            Fix(
                "Or use PyTorch's optimizer instead of DeepSpeed's.", 'config = {"zero_force_ds_cpu_optimizer": False}'
            ),
            Fix(
                "For the attention of Evoformer, say where CUTLASS is.",
                "git clone https://github.com/NVIDIA/cutlass && export CUTLASS_PATH=$PWD/cutlass",
                first_for=("CUTLASS",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://www.deepspeed.ai/tutorials/advanced-install/",),
    ),
    KnownError(
        id="deepspeed-probe",
        section=SECTION,
        title="DeepSpeed: optional library is not there",
        summary="When it is imported, DeepSpeed tries to link the libraries for offloading to NVMe; without them it"
        " continues.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("cannot find -l", r"cannot find -l(?P<library>aio|cufile)\b"),
            literal("async_io requires the dev libaio .so object and headers but these were not found"),
        ),
        causes=("The development files of libaio or cuFile are not installed, or not where the linker searches.",),
        fixes=(
            Fix("Ignore it, unless parameters or the optimizer are offloaded to NVMe."),
            Fix("To offload to NVMe, install the library.", "sudo apt-get install -y libaio-dev"),
            Fix(
                "If CUDA's libraries are not found, name their folder.",
                "export LIBRARY_PATH=/usr/local/cuda/lib64:$LIBRARY_PATH",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/deepspeedai/DeepSpeed/blob/master/op_builder/async_io.py",),
        said_by="DeepSpeed 0.10-0.19",
        is_warning=True,
    ),
    KnownError(
        id="deepspeed-batch",
        section=SECTION,
        title="DeepSpeed: batch sizes do not fit together",
        summary=(
            "The total batch must be the micro batch per GPU times the accumulation steps times the number of GPUs."
        ),
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "train_batch_size is not equal to",
                r"train_batch_size is not equal to micro_batch_per_gpu \* gradient_acc_step \* world_size"
                r"(?: (?P<total>\d{1,9}) != (?P<micro>\d{1,9}) \* (?P<steps>\d{1,9}) \* (?P<ranks>\d{1,9}))?",
            ),
        ),
        causes=("The number of GPUs changed, or only some of the values were changed in the configuration.",),
        fixes=(
            Fix(
                "Remove train_batch_size from the configuration: DeepSpeed then computes it.",
                'config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8}',
            ),
            Fix(
                "With transformers, let the trainer fill in all values.",
                'config = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",'
                ' "gradient_accumulation_steps": "auto"}',
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_DEEPSPEED,),
    ),
    KnownError(
        id="deepspeed-checkpoint-ranks",
        section=SECTION,
        title="DeepSpeed: checkpoint of another number of GPUs",
        summary="The optimizer's state was saved in as many parts as there were GPUs, and their number is now another.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "The checkpoint being loaded used a DP world size of",
                r"The checkpoint being loaded used a DP world size of (?P<saved>\d{1,6}) but the current world size is"
                r" (?P<current>\d{1,6})",
            ),
        ),
        causes=("The job continues on more or fewer GPUs.",),
        fixes=(
            Fix(
                "Convert the checkpoint to a universal one, and set checkpoint.load_universal in the configuration.",
                "python -m deepspeed.checkpoint.ds_to_universal --input_folder global_step100 --output_folder"
                " universal",
            ),
            Fix("Or use the same number of GPUs as before."),
            Fix("Or load only the weights.", "python zero_to_fp32.py . weights"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://www.deepspeed.ai/tutorials/universal-checkpointing/",),
    ),
    KnownError(
        id="deepspeed-no-checkpoint",
        section=SECTION,
        title="No complete checkpoint in the folder",
        summary="The folder from which DeepSpeed or the trainer should continue contains no checkpoint that it saved.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("assert len(self.ckpt_list) > 0"),
            Pattern("Can't find a valid checkpoint at", r"Can't find a valid checkpoint at (?P<path>[\w./-]{1,60})"),
            Pattern("can't find model states file at", r"can't find model states file at '(?P<path>[^'\n]{1,200})'"),
            Pattern("Unable to find 'latest' file at", r"Unable to find 'latest' file at (?P<path>\S{1,200})"),
            Pattern(
                "optim_states.pt' under",
                r"Expected \d{1,6} of '\*_optim_states\.pt' under '(?P<path>[^'\n]{1,200})' but found",
            ),
            Pattern("numels out of", r"consumed \d{1,15} numels out of \d{1,15} - something is wrong"),
            Pattern("can't find ", r"can't find \S{1,60} files in directory '(?P<path>[^'\n]{1,200})'"),
            literal("containing optimizer global state is missing! Cannot proceed"),
            literal("seems a bogus DeepSpeed checkpoint folder"),
            literal("No ZeRO files found in"),
            Pattern("is not a model state checkpoint", r"Error: [^\n]{1,200} is not a model state checkpoint"),
            Pattern("is not a zero checkpoint", r"Error: [^\n]{1,200} is not a zero checkpoint"),
        ),
        causes=(
            "The folder contains only the weights, and the run asks for the state of the optimizer.",
            "The path is wrong by one level: it must contain the file latest or the folder global_step.",
            "The checkpoint was saved with another ZeRO stage, or its saving was interrupted.",
        ),
        fixes=(
            Fix("Look at what the folder contains.", "ls -R output/checkpoint-1000 | head -40"),
            Fix(
                "Start from the weights only, with a new optimizer.",
                'model = AutoModelForCausalLM.from_pretrained("output/checkpoint-1000")\ntrainer.train()',
            ),
            Fix("Resume from an older checkpoint that is complete."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/deepspeedai/DeepSpeed/issues/3377",),
        said_by="DeepSpeed 0.8-0.18",
    ),
    KnownError(
        id="deepspeed-twice",
        section=SECTION,
        title="DeepSpeed: initialized twice",
        summary="A second model was given to DeepSpeed with a setting that works only once in a process.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(literal("ZeRO parameter intra parallel group is already initialized"),),
        causes=(
            "ZeRO++ with zero_hpz_partition_size, and two engines, such as a policy and its reference model.",
            "One process calls deepspeed.initialize for several models, or once per trial.",
        ),
        fixes=(
            Fix(
                "Remove the partition size of ZeRO++ from the configuration of the other models.",
                'reference_config["zero_optimization"].pop("zero_hpz_partition_size", None)',
            ),
            Fix("Start a new process for each run."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/deepspeedai/DeepSpeed/issues/4901",),
        said_by="DeepSpeed 0.10-0.18",
    ),
    KnownError(
        id="deepspeed-backward",
        section=SECTION,
        title="DeepSpeed: backward or step without its engine",
        summary="With ZeRO, the engine must run backward and step; a direct call leaves its buffers unset.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "' object has no attribute 'ipg_",
                r"'\w{0,60}Optimizer\w{0,20}' object has no attribute '(?P<name>ipg_\w{1,40})'",
            ),
            literal("Direct calls to tensor.backward() are not supported in this configuration"),
            literal("It is illegal to call Engine.step() inside no_sync context manager"),
            literal("This API is only defined for ZeRO-3 partitioned parameters"),
            Pattern(
                "'DeepSpeedZeRoOffload' object",
                r"'DeepSpeedZeRoOffload' object has no attribute '(?P<name>backward|step)'",
            ),
        ),
        causes=(
            "The loop calls loss.backward() and optimizer.step() of the model that was given to the engine.",
            "The engine's buffers are created at the first backward, and no trained parameter took part in it.",
        ),
        fixes=(
            Fix("Let the engine do both.", "engine.backward(loss)\nengine.step()"),
            Fix("With Accelerate, prepare everything, and use its backward.", "accelerator.backward(loss)"),
            Fix(
                "Check that the loss depends on parameters that are trained.",
                "print(sum(p.requires_grad for p in model.parameters()))",
            ),
            Fix(
                "Read a value of ZeRO-3 only for parameters that it divides.",
                "from deepspeed.utils import safe_get_full_fp32_param",
                first_for=("only defined for ZeRO-3",),
            ),
            Fix(
                "Call step() after the block of no_sync.",
                "with engine.no_sync():\n    engine.backward(loss)\nengine.step()",
                first_for=("no_sync",),
            ),
            Fix(
                "Give the engine an optimizer: without one, ZeRO-3 is only for inference.",
                "engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)",
                first_for=("DeepSpeedZeRoOffload",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://www.deepspeed.ai/getting-started/", "https://github.com/deepspeedai/DeepSpeed/issues/1218"),
        said_by="DeepSpeed 0.3-0.19",
    ),
    KnownError(
        id="deepspeed-optimizer",
        section=SECTION,
        title="DeepSpeed: optimizer does not fit the offload",
        summary="ZeRO-Offload computes the optimizer on the CPU, for which PyTorch's own optimizers are slow.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("You are using ZeRO-Offload with a client provided optimizer"),
            literal("You are using an untested ZeRO Optimizer"),
        ),
        causes=("The program creates the optimizer, and the configuration of DeepSpeed offloads its state.",),
        fixes=(
            Fix(
                "Let DeepSpeed create the optimizer.",
                'config["optimizer"] = {"type": "AdamW", "params": {"lr": 1e-5, "weight_decay": 0.01}}',
            ),
            Fix(
                "Or create the one that is fast on the CPU.",
                "optimizer = deepspeed.ops.adam.DeepSpeedCPUAdam(model.parameters(), lr=1e-5)",
            ),
            Fix(
                "Or permit the other one in the configuration.",
                'config["zero_force_ds_cpu_optimizer"] = False\nconfig["zero_allow_untested_optimizer"] = True',
                first_for=("untested",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_DEEPSPEED,),
        said_by="DeepSpeed 0.8-0.18",
    ),
    KnownError(
        id="deepspeed-config",
        section=SECTION,
        title="DeepSpeed's configuration contradicts the trainer's",
        summary="A value is set both in DeepSpeed's configuration and in the trainer's arguments, and they differ.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("Expected a string path to an existing deepspeed config"),
            literal("Please correct the following DeepSpeed config values that mismatch TrainingArguments"),
            Pattern(
                "` in the DeepSpeed config",
                r"Do not set `(?P<setting>\w{1,60})` in the DeepSpeed config",
            ),
            Pattern(
                "using DeepSpeed", r"When using DeepSpeed,? `accelerate\.prepare\(\)` requires you to pass at least one"
            ),
            Pattern(
                "DeepSpeed Zero-3 is not compatible with",
                r"DeepSpeed Zero-3 is not compatible with (?P<setting>[^\n]{1,60})",
            ),
            Pattern(" for DeepSpeed", r"validation errors? for (?P<section>DeepSpeed\w{1,60})"),
            literal("bfloat16 and fp16 modes cannot be simultaneously enabled"),
            literal("ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism"),
            literal("DeepSpeed requires --deepspeed_config to specify configuration file"),
            literal("Duplicate keys in DeepSpeed config"),
            Pattern(
                "must provide optimizer during init in order",
                r"must provide optimizer during init in order to use (?P<call>\w{1,20})",
            ),
            Pattern("supported DeepSpeed Optimizer", r"(?P<optimizer>\w{1,40}) is not a supported DeepSpeed Optimizer"),
            Pattern(
                "auto` (set to correct value) in the DeepSpeed",
                r"Please specify `(?P<setting>[\w.]{1,80})` without `auto` \(set to correct value\) in the DeepSpeed",
            ),
            Pattern(
                "has `None` as batch size", r"dataloaders passed to `accelerate\.prepare\(\)` has `None` as batch size"
            ),
            literal("Please specify the ZeRO optimization config in the DeepSpeed config"),
            Pattern("cannot be set to", r"`--mixed_precision` arg cannot be set to `(?P<value>\w{1,10})` when"),
            literal("Cannot get 16bit model weights because `stage3_gather_16bit_weights_on_model_save`"),
        ),
        causes=(
            "The configuration was written for another trainer or batch size.",
            "The file of the configuration does not exist in the folder in which the program runs.",
        ),
        fixes=(
            Fix("Let the trainer fill in the value.", 'config["gradient_accumulation_steps"] = "auto"'),
            Fix(
                "With Lightning, remove the value from the configuration.",
                'config.pop("gradient_accumulation_steps", None)',
                first_for=("MisconfigurationException",),
            ),
            Fix(
                "Without a data loader, name the batch size in the configuration.",
                'config["train_micro_batch_size_per_gpu"] = 4',
                first_for=("at least one of training",),
            ),
            Fix(
                "Name the file of the configuration by its full path.",
                "ls -l deepspeed_configs/zero3_bf16.json",
                first_for=("existing deepspeed config",),
            ),
            Fix(
                "With ZeRO-3, load the model without device_map and low_cpu_mem_usage.",
                "model = AutoModelForCausalLM.from_pretrained(name)",
                first_for=("device_map",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://huggingface.co/docs/transformers/main/en/deepspeed",
            "https://github.com/Lightning-AI/pytorch-lightning/issues/19891",
        ),
        said_by="transformers 4.30-5.0, Lightning 2.2",
    ),
    KnownError(
        id="zero-no-sync",
        section=SECTION,
        title="Trainer skips a synchronization that ZeRO needs",
        summary="To accumulate gradients, the trainer calls no_sync, which DeepSpeed 0.16 and newer forbid for"
        " ZeRO-2 and"
        " ZeRO-3: each step has to divide its gradients.",
        context=ContextState.ALIVE,
        patterns=(literal("no_sync context manager is incompatible with gradient partitioning logic of ZeRO"),),
        causes=("The installed transformers, accelerate or trainer is older than DeepSpeed 0.16.",),
        fixes=(
            Fix(
                "Upgrade the packages together; current ones do not call no_sync with ZeRO-2.",
                "pip install --upgrade transformers accelerate deepspeed",
            ),
            Fix("Or install the last DeepSpeed that permits it.", 'pip install "deepspeed<0.16"'),
            Fix("Or do not accumulate gradients.", "arguments = TrainingArguments(gradient_accumulation_steps=1)"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/deepspeedai/DeepSpeed/issues/6793",),
        said_by="DeepSpeed 0.16-0.18",
    ),
)
