"""Options, arguments and configuration files that a training program does not accept."""

from typing import Final

from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Options and configuration"

_PROGRAM: Final = r"(?:train|tun|launch|run|deepspeed|accelerate|sft|ppo|dpo|serve|vllm)[\w.-]{0,40}"
"""The end of the name of a launcher or of a script that trains; other programs have such errors as well."""
ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="unknown-arguments",
        section=SECTION,
        title="Script does not know these arguments",
        summary="The command has arguments that the script or launcher does not define, or lacks some that it needs.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("is not a valid YOLO argument", r"'(?P<arguments>[^'\n]{1,60})' is not a valid YOLO argument"),
            Pattern("error: invalid argument: ", r"error: invalid argument: (?P<arguments>\S{1,60})"),
            Pattern(
                "error: unrecognized arguments: ",
                _PROGRAM + r": error: unrecognized arguments: (?P<arguments>[^\n]{1,160})",
            ),
            Pattern(
                "are not used by the HfArgumentParser",
                r"are not used by the HfArgumentParser: (?P<arguments>[^\n]{1,160})",
            ),
            Pattern(
                "error: the following arguments are required: ",
                _PROGRAM + r": error: the following arguments are required: (?P<arguments>[^\n]{1,160})",
            ),
            Pattern(
                "error: ambiguous option: ",
                _PROGRAM + r": error: ambiguous option: (?P<arguments>\S{1,100}) could match",
            ),
            Pattern(
                "error: argument ",
                _PROGRAM
                + r": error: argument (?P<arguments>-[^\n:]{1,100}): (?:expected |invalid choice|invalid \w{1,20} value"
                r"|not allowed with)",
            ),
        ),
        causes=(
            "The option was renamed or removed in the installed version, or belongs to another script.",
            "torch.distributed.launch adds --local-rank, which the script does not know; torchrun does not add it.",
            "A backslash at the end of a line of the shell script is followed by a space, or is missing.",
        ),
        fixes=(
            Fix("Show the options that the script knows.", "python train.py --help"),
            Fix(
                "If the argument is --local-rank, start with torchrun, and read LOCAL_RANK from the environment.",
                "torchrun --nproc-per-node=gpu train.py",
                first_for=("local-rank", "local_rank"),
            ),
            Fix("Put the options of the launcher before the script, and those of the script after it."),
            Fix(
                "Show the options of the installed vLLM, which change with its versions; adapters are named by"
                " --lora-modules.",
                "vllm serve --help=all",
                first_for=("vllm: error",),
            ),
            Fix(
                "Add the arguments that the message names.",
                "python train.py --help",
                first_for=("are required: ",),
            ),
            Fix(
                "Leave the argument out, or correct it; `yolo cfg` prints those of Ultralytics.",
                first_for=("valid YOLO",),
            ),
            Fix(
                "A key of the YAML or JSON file is misspelled, or has another name in the installed version: compare"
                " with an example of that version.",
                first_for=("HfArgumentParser",),
                hidden_otherwise=True,
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://docs.python.org/3/library/argparse.html",
            "https://docs.pytorch.org/docs/stable/elastic/run.html",
        ),
        said_by="Python 3.9-3.13, transformers 4.30-5.0",
    ),
    KnownError(
        id="hydra-options",
        section=SECTION,
        title="Configuration does not have this key",
        summary="Hydra, OmegaConf or Pydantic refused a setting: the key is unknown, has no value or is malformed.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "should be set within your deepspeed",
                r"(?P<key>\w{1,60}) should be set within your deepspeed config file",
            ),
            Pattern("omegaconf.errors.", r"\bomegaconf\.errors\.(?P<error>\w{1,60})"),
            Pattern("hydra.errors.", r"\bhydra\.errors\.(?P<error>\w{1,60})"),
            Pattern("Could not override '", r"Could not override '(?P<key>[^'\n]{1,160})'"),
            Pattern("' is not in struct", r"Key '(?P<key>[^'\n]{1,120})' is not in struct"),
            Pattern("issing mandatory value", r"[Mm]issing mandatory value: (?P<key>[\w.]{1,160})"),
            Pattern("Cannot find primary config", r"Cannot find primary config '(?P<key>[^'\n]{1,120})'"),
            literal("Error locating target"),
            literal("Extra inputs are not permitted"),
        ),
        causes=(
            "The command was written for another version of the program, in which the key has another name.",
            "A key that the configuration does not have is added with +, one that may exist with ++.",
            "A value with commas, brackets, an equals sign or spaces needs quotes around the whole setting.",
        ),
        fixes=(
            Fix("Show the configuration that results, and its keys.", "python train.py --cfg job"),
            Fix("Add a key that does not exist.", "python train.py +trainer.new_key=1"),
            Fix(
                "Name the folder of the configurations, which is relative to the file of the program, and the name in"
                " it.",
                "python train.py --config-path /path/to/configs --config-name NAME",
                first_for=("primary config",),
            ),
            Fix("Quote a setting for the shell.", "python train.py 'data.files=[a.parquet,b.parquet]'"),
            Fix("Use the example script of the installed version."),
            Fix(
                "Show the exception behind the message: the class could not be imported or created.",
                "HYDRA_FULL_ERROR=1 python train.py",
                first_for=("Error locating target",),
            ),
            Fix(
                "Remove or rename the field that the message names: the installed version does not have it.",
                first_for=("Extra inputs are not permitted",),
            ),
            Fix(
                "Set it in the JSON file of DeepSpeed, and remove it from the other configuration.",
                first_for=("within your deepspeed",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://hydra.cc/docs/advanced/override_grammar/basic/",),
        said_by="Hydra 1.3, OmegaConf 2.3",
    ),
    KnownError(
        id="lightning-options",
        section=SECTION,
        title="Lightning cannot use this setting",
        summary="Lightning checked the trainer, the model or a callback, and refused a setting; the message names it.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "MisconfigurationException: ",
                r"MisconfigurationException: (?!You requested gpu|No supported gpu|`\w{1,40}` can not run on your"
                r"|Do\b|DeepSpeed strategy is only)",
            ),
            Pattern(
                "is not compatible with an interactive",
                r"is not compatible with an interactive environment\. Run your code as a script",
            ),
            Pattern(
                "set through both ",
                r"(?:accelerator|precision|checkpoint_io|environment) set through both (?P<places>[^\n,]{1,80})",
            ),
            Pattern(
                "is invalid. Allowed precision values",
                r"Precision '?(?P<value>[\w.-]{1,20})'? is invalid\. Allowed precision values",
            ),
        ),
        causes=(
            "Two settings exclude each other, or a setting requires a method or metric that the model does not have.",
            "The program was written for another version of Lightning.",
        ),
        fixes=(
            Fix("Change the setting that the message names."),
            Fix(
                "If the setting was valid in an older version, read the guide for upgrading.",
                "pip show lightning pytorch-lightning",
            ),
            Fix(
                "In a notebook, use the strategy that forks.",
                'trainer = Trainer(devices=2, strategy="ddp_notebook")',
                first_for=("interactive environment",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://lightning.ai/docs/pytorch/stable/upgrade/migration_guide.html",),
        said_by="Lightning 2.0-2.6",
    ),
    KnownError(
        id="none-value",
        section=SECTION,
        title="Value was not set",
        summary="A calculation or comparison has None for a number, because an option or a field has no value.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "TypeError: unsupported operand type(s) for ",
                r"TypeError: unsupported operand type\(s\) for (?P<operator>\S{1,12}(?: or pow\(\))?): (?:'NoneType'"
                r" and '(?:int|float|NoneType|str)'|'(?:int|float)' and 'NoneType')",
            ),
            Pattern(
                "not supported between instances of",
                r"TypeError: '(?P<operator>[<>]=?)' not supported between instances of (?:'NoneType' and"
                r" '(?:int|float)'|'(?:int|float)' and 'NoneType')",
            ),
        ),
        causes=(
            "An option that this program needs was not given, and its default is None.",
            "Configurations of another version of the program, model or tokenizer lack the field.",
        ),
        fixes=(
            Fix("Read the last line of the traceback: one of its two names is None; set that option."),
            Fix("Show the configuration that the program uses.", "print(config)"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/verl-project/verl/issues/145",),
        said_by="Python 3.9-3.13",
    ),
)
