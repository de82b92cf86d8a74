"""Errors of settings of the trainers: adapters, versions of Accelerate, and options that need a GPU."""

from typing import Final

from gpumon.diagnosis.catalogue.models import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_TRAINER: Final = "https://huggingface.co/docs/transformers/main_classes/trainer"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="peft-modules",
        section=SECTION,
        title="Adapter does not fit the model",
        summary="The names of the modules that get an adapter do not exist in this model, or cannot carry one.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "not found in the base model",
                r"Target modules (?P<modules>[^\n]{1,200}?) not found in the base model",
            ),
            Pattern(
                "Please specify ",
                r"Please specify [`'\"]?(?P<modules>target_modules|feedforward_modules|num_layers|token_dim|"
                r"num_attention_heads)[`'\"]?(?: or [`'\"]?target_parameters[`'\"]?)? ?in [`'\"]?peft_config",
            ),
            Pattern(
                "is not supported. Currently, only the following modules",
                r"Target module (?P<module>[^\n]{1,120}) is not supported\. Currently, only the following modules",
            ),
            Pattern(
                " not found in odict_keys(",
                r"Error: Adapter (?P<adapter>[\w.-]{1,80}) not found in odict_keys\((?P<modules>[^\n]{1,120}?)\)",
            ),
            Pattern("No modules were targeted for adaptation", r"No modules were targeted for adaptation"),
        ),
        causes=(
            "The names are of another architecture: q_proj and v_proj, query_key_value, c_attn.",
            "The model was wrapped or renamed, so that its names have another beginning.",
        ),
        fixes=(
            Fix(
                "With a model of transformers, let PEFT choose all linear layers.",
                'config = LoraConfig(target_modules="all-linear")',
            ),
            Fix(
                "List the linear layers of the model, and name some of them.",
                "print([name for name, part in model.named_modules() if isinstance(part, torch.nn.Linear)])",
            ),
            Fix(
                "The list is empty: layers of a quantized model are not torch.nn.Linear, so that a search for these"
                " finds none. Name them.",
                'config = LoraConfig(target_modules=["q_proj", "k_proj", "v_proj", "o_proj"])',
                first_for=("modules [] not found", "modules set() not found"),
                hidden_otherwise=True,
            ),
            Fix(
                "Name an adapter that is loaded; load_adapter() gives it the name, and not all layers need to have it.",
                'print(list(model.peft_config))\nmodel.load_adapter(ADAPTER, adapter_name="second")',
                first_for=("odict_keys",),
            ),
            Fix(
                "The adapter was saved with the names of the wrapped model: remove `base_model.model.` from them.",
                'state = {name.replace("base_model.model.", ""): value for name, value in state.items()}',
                first_for=("{'base_model.model.",),
                hidden_otherwise=True,
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://huggingface.co/docs/peft/developer_guides/troubleshooting",),
        said_by="PEFT 0.4-0.18",
    ),
    KnownError(
        id="peft-merge",
        section=SECTION,
        title="Adapter cannot be merged into the model",
        summary="The weights of the model are in a form to which those of the adapter cannot be added.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("Cannot merge LORA layers when", r"Cannot merge LORA layers when (?P<reason>[^\n]{1,80})"),
            Pattern("NaNs detected in the merged", r"NaNs detected in the merged (?:weights|bias)"),
            Pattern("does not support merge yet", r"Error: (?P<layer>\w{1,60}) does not support merge yet"),
        ),
        causes=("The base model was loaded quantized.", "The adapter contains NaN: its training had diverged."),
        fixes=(
            Fix(
                "Load the base model without quantization, then merge.",
                """\
model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
model = PeftModel.from_pretrained(model, adapter).merge_and_unload()""",
            ),
            Fix(
                "Or serve the adapter next to the quantized model.",
                "vllm serve MODEL --enable-lora --lora-modules name=/adapter",
            ),
            Fix(
                "Check the adapter: if it has NaN, train it again with a lower learning rate, in bfloat16.",
                "print([name for name, value in state.items() if not torch.isfinite(value).all()])",
                first_for=("NaNs detected",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://huggingface.co/docs/peft/developer_guides/model_merging",),
        said_by="PEFT 0.4-0.18",
    ),
    KnownError(
        id="trainer-setting",
        section=SECTION,
        title="Setting of the trainer does not fit this host",
        summary="An option needs a newer GPU, a launcher or a package that this run does not have.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "requires Ampere or a newer GPU arch",
                r"--?(?P<option>tf32|bf16)\w{0,12} requires Ampere or a newer GPU arch",
            ),
            Pattern(" only works in distributed training", r"Using fsdp only works in distributed training"),
            Pattern(
                "with `PyTorch` requires `accelerate>=",
                r"Using the `(?P<class>\w{1,40})` with `PyTorch` requires `accelerate>=(?P<required>[\d.]{1,8})`",
            ),
            Pattern(
                " as a kwarg when passing ",
                r"You can't pass `?load_in_4bit`? ?or `?load_in_8bit`? as a kwarg when passing `?quantization_config`?",
            ),
            Pattern(" requires an optimizer", r"zero stage (?P<stage>\d) requires an optimizer"),
            Pattern(
                "You selected an invalid ",
                r"You selected an invalid (?:strategy|accelerator) name: (?P<option>[^\n]{1,60})",
            ),
        ),
        causes=(
            "The types tf32 and bf16 need compute capability 8.0 or newer.",
            "FSDP needs several processes: the program was started with python instead of a launcher.",
            "The package accelerate is missing, or was installed after the notebook's kernel started.",
        ),
        fixes=(
            Fix("Start with a launcher.", "torchrun --nproc-per-node=gpu train.py"),
            Fix(
                "Install a current Accelerate and restart the notebook's kernel.",
                'pip install --upgrade "accelerate>=1.0"',
                first_for=("accelerate>=",),
            ),
            Fix(
                "On an older GPU use fp16.",
                "arguments = TrainingArguments(output_dir, fp16=True, bf16=False, tf32=False)",
                first_for=("Ampere",),
            ),
            Fix(
                "Choose 4 or 8 bits in quantization_config only.",
                "config = BitsAndBytesConfig(load_in_4bit=True)\n"
                "model = AutoModelForCausalLM.from_pretrained(name, quantization_config=config)",
                first_for=("load_in_4bit",),
            ),
            Fix(
                "Since Lightning 2, the strategy dp is gone; use ddp.",
                'trainer = Trainer(strategy="ddp")',
                first_for=("strategy name",),
            ),
            Fix(
                "ZeRO 1 and 2 need an optimizer: to evaluate only, leave DeepSpeed out.",
                "model.eval(); outputs = model(**batch)",
                first_for=("requires an optimizer",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_TRAINER,),
        said_by="transformers 4.30-5.0, DeepSpeed 0.10-0.18",
    ),
)
