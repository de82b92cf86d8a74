"""Errors of the programs that fine-tune models: Unsloth, TRL, PEFT, Lightning and the checkpoints of their trainers."""

from typing import Final

from gpumon.diagnosis.catalogue.models import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_TRAINER: Final = "https://huggingface.co/docs/transformers/main_classes/trainer"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="unsloth",
        section=SECTION,
        title="Unsloth stopped and says why",
        summary="Unsloth checks versions, models and settings itself; the text behind its name is the reason.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Unsloth: ",
                r"(?:Error|Exception): Unsloth:(?! ?Saving LoRA finetune failed| ?Failed compiling|"
                r" ?Quantization failed| ?Conversion"
                r" failed| ?GGUF conversion| ?Merge failed| ?Failed to convert| ?The file '?llama| ?Process"
                r" crashed| ?No NVIDIA GPU| ?All"
                r" labels| ?train_on_responses_only) (?P<reason>[^\n]{1,200})",
            ),
            Pattern(
                "Unsloth should be imported before ",
                r"ImportError: [^\n]{0,40}Unsloth should be imported before (?P<reason>[^\n]{1,80})",
            ),
            Pattern(
                "has no attribute 'Unsloth",
                r"module 'Unsloth\w{1,40}' has no attribute '(?P<reason>Unsloth\w{1,40})'",
            ),
            Pattern("module loading failed for", r"Direct module loading failed for (?P<reason>[Uu]nsloth\w{1,40})"),
            Pattern("Error: _unwrapped_old_generate", r"AttributeError: (?P<reason>_unwrapped_old_generate)"),
            Pattern(
                "grpo_accumulated_loss() ",
                r"grpo_accumulated_loss\(\) (?P<reason>missing \d|got an unexpected|takes \d)",
            ),
            Pattern("unsloth.models._utils.EmptyLogits", r"unsloth\.models\._utils\.(?P<reason>EmptyLogits)"),
            Pattern(
                "has no attribute 'unsloth_",
                r"has no attribute '(?P<reason>unsloth_\w{1,40})'",
            ),
        ),
        causes=(
            "Unsloth, unsloth_zoo, TRL, transformers and vLLM are of versions that do not belong together.",
            "Other packages were imported before Unsloth, which patches them.",
            "The cache of compiled trainers is of an older version.",
        ),
        fixes=(
            Fix("Import Unsloth first, above transformers, TRL and PEFT.", "import unsloth"),
            Fix(
                "Upgrade both of its packages together, then restart the notebook's kernel.",
                "pip install --upgrade --force-reinstall --no-cache-dir --no-deps unsloth unsloth_zoo",
                first_for=(
                    "grpo_",
                    "'unsloth_",
                    "'Unsloth",
                    "_unwrapped_old_generate",
                    "file a bug report",
                ),
            ),
            Fix(
                "Delete the compiled trainers.",
                "rm -rf unsloth_compiled_cache /tmp/unsloth_compiled_cache",
                first_for=("dynamic compiled modules", "loading failed for Unsloth"),
            ),
            Fix(
                "The code that Unsloth wrote for this kind of model is no valid Python: do without it, and upgrade"
                " Unsloth.",
                "UNSLOTH_COMPILE_DISABLE=1 python train.py",
                first_for=("loading failed for unsloth_",),
                hidden_otherwise=True,
            ),
            Fix("Install vLLM, or set fast_inference=False.", "pip install unsloth vllm", first_for=("install vLLM",)),
            Fix(
                "Let the model return its logits, which metrics need.",
                'import os\n\nos.environ["UNSLOTH_RETURN_LOGITS"] = "1"',
                first_for=("EmptyLogits", "Logits are empty"),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/unslothai/unsloth", "https://github.com/unslothai/unsloth-zoo"),
        said_by="Unsloth 2024.8-2026.8",
    ),
    KnownError(
        id="trl-setting",
        section=SECTION,
        title="TRL rejected a setting",
        summary="Batch sizes, the number of generations, the adapter or vLLM do not fit together in this trainer of"
        " TRL.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "You passed a `PeftModel` instance together",
                r"You passed a `PeftModel` instance together with a `peft_config`",
            ),
            Pattern("`use_vllm` is set to True", r"vLLM is not available and `use_vllm` is set to True"),
            Pattern("use_vllm is set to True", r"vLLM is not available and use_vllm is set to True"),
            Pattern(
                "`model` and `ref_model` cannot be the same object",
                r"`model` and `ref_model` cannot be the same object",
            ),
            Pattern(
                "must be either a `PreTrainedTokenizerBase`",
                r"The `processing_class` must be either a `PreTrainedTokenizerBase`",
            ),
            Pattern(
                "causes image placeholder",
                r"The current `max_length` \((?P<size>\d{1,9})\) is too short and causes image placeholder",
            ),
        ),
        causes=(
            "The global batch is the batch per GPU, times the GPUs, times the steps of accumulation.",
            "The model has an adapter already, and a second one was asked for.",
            "A package that the setting needs, such as vLLM, is not installed.",
        ),
        fixes=(
            Fix(
                "Choose a global batch that is a multiple of the generations per prompt.",
                "config = GRPOConfig(per_device_train_batch_size=8, num_generations=8)",
            ),
            Fix(
                "Pass either a model with an adapter, or the plain model with peft_config.", first_for=("`PeftModel`",)
            ),
            Fix(
                "Leave ref_model out: the trainer makes the copy.",
                "trainer = DPOTrainer(model, args=config)",
                first_for=("ref_model",),
            ),
            Fix(
                "Install TRL with what it needs.", 'pip install "trl[peft,vllm]"', first_for=("vLLM is not available",)
            ),
            Fix(
                "Do not cut the examples: an image takes hundreds of tokens.",
                "config = SFTConfig(max_length=None)",
                first_for=("image placeholder",),
            ),
            Fix(
                "Pass the tokenizer or processor under its new name.",
                "trainer = SFTTrainer(model, processing_class=tokenizer, args=config)",
                first_for=("`processing_class`",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://huggingface.co/docs/trl/grpo_trainer",),
        said_by="TRL 0.14-1.0",
    ),
    KnownError(
        id="checkpoint-not-found",
        section=SECTION,
        title="Checkpoint to resume from is missing or incomplete",
        summary="The folder has no checkpoint that this trainer can resume from, or only its weights.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "No valid checkpoint found",
                r"No valid checkpoint found in output directory \((?P<folder>[^\n]{1,160})\)",
            ),
            Pattern(
                "but checkpoint contains only the model",
                r"Trying to restore (?P<part>training|optimizer|\w{1,20}) state but checkpoint contains only the model",
            ),
            Pattern(
                "Can't find 'adapter_config.json' at",
                r"Can't find 'adapter_config\.json' at '(?P<folder>[^'\n]{1,160})'",
            ),
        ),
        causes=(
            "The run ended before its first save, or saves to another folder.",
            "The checkpoint was saved without the state of the optimizer, for use and not for resuming.",
            "The folder holds a full model where an adapter is expected, or the other way around.",
        ),
        fixes=(
            Fix("List what is there.", "ls -l OUTPUT OUTPUT/checkpoint-*"),
            Fix("Name the checkpoint.", 'trainer.train(resume_from_checkpoint="OUTPUT/checkpoint-500")'),
            Fix(
                "If only the weights exist, load them and restart the schedule.",
                'model = Module.load_from_checkpoint("last.ckpt")\ntrainer.fit(model)',
                first_for=("contains only the model",),
            ),
            Fix("Save the complete state next time.", "callback = ModelCheckpoint(save_weights_only=False)"),
            Fix(
                "Load an adapter from the folder that has adapter_config.json; a full model needs no adapter.",
                "ls -l OUTPUT/adapter_config.json OUTPUT/config.json",
                first_for=("adapter_config.json",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            _TRAINER,
            "https://github.com/Lightning-AI/pytorch-lightning/issues/20230",
            "https://github.com/huggingface/peft/blob/main/src/peft/config.py",
        ),
        said_by="transformers 4.30-5.0, Lightning 1.5-2.5, PEFT 0.4-0.18",
    ),
    KnownError(
        id="trainer-arguments",
        section=SECTION,
        title="Arguments of the trainer contradict each other",
        summary="Two settings of TrainingArguments cannot be used together, or one that depends on another is missing.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "requires either non-zero --eval_steps", r"requires either non-zero --eval_steps or --logging_steps"
            ),
            literal("train_dataset does not implement __len__, max_steps has to be specified"),
            Pattern(
                "You cannot specify ",
                r"You cannot specify an? (?:optimizer|scheduler) in the config file and in the code at the same time",
            ),
            Pattern(
                "--load_best_model_at_end requires ",
                r"--load_best_model_at_end requires the (?P<setting>save and eval strategy to match|saving steps)",
            ),
            Pattern("At most one of fp16 and bf16", r"At most one of fp16 and bf16 can be True"),
            Pattern(
                "does not implement __len__, max_steps has",
                r"The train_dataset does not implement __len__, max_steps has to be specified",
            ),
            Pattern("requires an eval_dataset", r"Trainer: evaluation requires an eval_dataset"),
            Pattern(
                "but that quantization method do not support training",
                r"but that quantization method do not support training",
            ),
            Pattern(
                "cannot be used as is for training",
                r"The model you have picked \((?P<model>\w{1,80})\) cannot be used as is for training",
            ),
            Pattern(
                "have set `args.eval_strategy`",
                r"You have set `args\.eval_strategy` to [^\n]{1,40} but you didn't pass an",
            ),
        ),
        causes=(
            "Evaluation and saving run at different steps, or no data set for evaluation was passed.",
            "A data set that is streamed has no length, from which the number of steps follows.",
            "A quantized model has no weights that can be trained: it needs an adapter.",
        ),
        fixes=(
            Fix(
                "Evaluate and save at the same steps.",
                'arguments = TrainingArguments(output_dir, eval_strategy="epoch", save_strategy="epoch")',
            ),
            Fix(
                "For a streamed data set, give the number of steps.",
                "arguments = TrainingArguments(output_dir, max_steps=1000)",
                first_for=("__len__",),
            ),
            Fix(
                "Train a quantized model through an adapter.",
                'model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM"))',
                first_for=("method do not support training",),
            ),
            Fix(
                "Choose one of the two types.",
                "arguments = TrainingArguments(output_dir, bf16=True, fp16=False)",
                first_for=("fp16 and bf16",),
            ),
            Fix(
                "Pass a data set for the evaluation, or turn the evaluation off.",
                'arguments = TrainingArguments(output_dir, eval_strategy="no")',
                first_for=("eval_dataset",),
            ),
            Fix(
                "Name the optimizer and the scheduler in one place: in the arguments, or in the file of DeepSpeed.",
                first_for=("optimizer in the config file",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_TRAINER,),
        said_by="transformers 4.30-5.0",
    ),
    KnownError(
        id="device-map-incomplete",
        section=SECTION,
        title="Device map leaves parameters without a device",
        summary="The map that assigns the parts of the model to GPUs does not name all of them.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("doesn't have any device set", r"(?P<name>[\w.]{3,200}) doesn't have any device set"),
            Pattern(
                "does not give any device for the following",
                r"The device_map provided does not give any device for the following parameters:"
                r" (?P<name>[^\n]{1,160})",
            ),
        ),
        causes=(
            "The map was written for another model, or for another version of it whose layers have other names.",
            "The program makes the map itself and does not know this model.",
        ),
        fixes=(
            Fix(
                "Let Accelerate make the map.",
                'model = AutoModelForCausalLM.from_pretrained(name, device_map="auto")',
            ),
            Fix(
                "Or load the whole model onto one GPU.",
                'model = AutoModelForCausalLM.from_pretrained(name, device_map={"": 0})',
            ),
            Fix(
                "Compare the names of the map with those of the model.",
                "print([name for name, _ in model.named_children()])",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/modeling.py",),
        said_by="accelerate 0.20-1.12, transformers 4.30-5.0",
    ),
)
