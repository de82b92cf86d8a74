"""The version of a package to install, from the name that the installed version does not have."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from gpumon.diagnosis.known import Fix

_ADDED_CLASS: Final = re.compile(
    r"(?!TF|Flax|AutoModelForVision2Seq|AutoModelWithLMHead)[A-Z]\w*(?:Config|Processor|Model|For[A-Z]\w+|Pipeline)"
)
"""A class of transformers that is missing because it is newer than the installed version; other names were removed."""
_KEPT_UNTIL: Final = {
    "cached_download": "huggingface_hub<0.26",
    "HfFolder": "huggingface_hub<1",
    "Repository": "huggingface_hub<1",
    "is_offline_mode": "huggingface_hub<1",
    "DataCollatorForCompletionOnlyLM": "trl<0.20",
    "setup_chat_format": "trl<0.20",
    "PPOConfig": "trl<0.26",
    "PPOTrainer": "trl<0.26",
    "AutoModelForCausalLMWithValueHead": "trl<0.26",
    "functional_tensor": "torchvision<0.17",
}
"""What has a name that was removed or moved."""
_UPGRADED: Final = frozenset(
    {"accelerate", "bitsandbytes", "datasets", "diffusers", "huggingface_hub", "optimum", "peft", "trl", "unsloth"}
)
"""Packages of which programs mostly need a newer version. A command installs no package that only a log names."""


def fitting_version(values: Mapping[str, int | str], fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The fixes, the command that installs the version with the missing name first, if it is known."""
    module, name = str(values.get("module", "")), str(values.get("name", ""))
    package = module.split(".", maxsplit=1)[0]
    kept = next((kept for part, kept in _KEPT_UNTIL.items() if part in (name, module.rpartition(".")[2])), "")
    if kept:
        first = Fix("Install the last version that has this name.", f'pip install "{kept}"')
    elif caller := values.get("raised_by"):
        first = Fix(
            f"Upgrade {caller}, whose code raised the error; if it is the newest release, install the releases of its "
            "dependencies that it was tested with, which its requirements name."
        )
    elif package in _UPGRADED:
        first = Fix(f"Upgrade {package}: the name came with a newer version.", f"pip install --upgrade {package}")
    elif package != "transformers":
        return tuple(fixes)
    elif _ADDED_CLASS.fullmatch(name) or not name:
        first = Fix("Upgrade transformers: the class came with a newer version.", "pip install --upgrade transformers")
    else:
        first = Fix("Install an older transformers: the name was removed or moved.", 'pip install "transformers<5"')
    return first, *fixes
