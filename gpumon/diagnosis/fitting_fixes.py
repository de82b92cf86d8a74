"""Which fixes of an entry are shown: those for another message or another log than this one are not."""

from collections.abc import Sequence
from typing import Final

from gpumon.diagnosis.known import Fix

_ONE_REASON: Final = frozenset(
    {
        "compiler-missing",
        "container-cli",
        "cuda-home",
        "dcgm-exporter",
        "extension-not-built",
        "llama-init",
        "module-load",
        "no-kernel-image",
        "sglang-capture",
        "tensorrt-llm",
        "tgi-shard",
        "tgi-signal",
    }
)
"""Errors that are one name for several reasons, of which a log has one."""


def fitting_fixes(error_id: str, fixes: Sequence[Fix], chosen: Sequence[Fix]) -> list[Fix]:
    """The fixes that remain in addition to those for this message, the general ones first.

    One that states what only another log shows would be false, and one for another reason does not help.

    Args:
        error_id: The entry of the catalogue.
        fixes: The fixes of the entry.
        chosen: Those of them that are for this message.
    """
    others = [fix for fix in fixes if fix not in chosen]
    general = [fix for fix in others if not fix.first_for]
    if chosen and error_id in _ONE_REASON:
        return general
    special = [fix for fix in others if fix.first_for and not fix.hidden_otherwise]
    return [*general, *special]
