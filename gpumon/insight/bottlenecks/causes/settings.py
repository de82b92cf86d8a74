"""Settings that make every step longer: variables of the environment, and arguments in the source of the program."""

import re
from typing import Final, NamedTuple

from gpumon.core.step_classes import COMMUNICATION, HOST, IDLE, SYNC
from gpumon.insight.bottlenecks.cause import NO_LINE, CauseRule, Finding
from gpumon.insight.bottlenecks.slowness_evidence import SlownessEvidence

UNUSED_PARAMETERS: Final = "find_unused_parameters"
BUCKETS: Final = "bucket_cap_mb"
IN_SOURCE: Final = {
    UNUSED_PARAMETERS: re.compile(r"\bfind_unused_parameters\s*=\s*True"),
    BUCKETS: re.compile(r"\bbucket_cap_mb\s*=\s*(?:0?\.\d+|[0-4](?:\.\d+)?)\s*[,)]"),
    "CUDA_LAUNCH_BLOCKING": re.compile(r"""environ\b.*["']CUDA_LAUNCH_BLOCKING["']\]?\s*[=,]\s*["']1["']"""),
}
"""How a line of the program makes a setting, by the name of the setting; the keys of `SlownessEvidence.hints`."""
_WAITING: Final = (HOST, SYNC, IDLE)
_OFF: Final = frozenset(("", "0", "OFF", "INFO"))


class DebugSetting(NamedTuple):
    """A variable of the environment.

    Attributes:
        name: Its name.
        text: What it does, as a clause.
        classes: The classes that it makes longer.
    """

    name: str
    text: str
    classes: tuple[str, ...]


DEBUG_SETTINGS: Final = (
    DebugSetting("CUDA_LAUNCH_BLOCKING", "every launch waits until its kernel is done", _WAITING),
    DebugSetting("PYTORCH_NO_CUDA_MEMORY_CACHING", "the driver allocates and frees every tensor", _WAITING),
    DebugSetting("TORCH_DISTRIBUTED_DEBUG", "all ranks compare every collective first", (COMMUNICATION, HOST)),
    DebugSetting("NCCL_P2P_DISABLE", "GPUs exchange data through the memory of the host", (COMMUNICATION,)),
    DebugSetting("NCCL_IB_DISABLE", "hosts exchange data without InfiniBand", (COMMUNICATION,)),
)


def _debugging(evidence: SlownessEvidence) -> Finding | None:
    account = evidence.account
    findings = []
    for setting in DEBUG_SETTINGS if evidence.gpu is not None else ():
        value = evidence.host.settings.get(setting.name, "")
        line = evidence.hints.get(setting.name, NO_LINE)
        if value.upper() in _OFF and not line:
            continue
        seconds = sum(account.share_of(name).cost_seconds for name in setting.classes)
        where = f"{setting.name}={value}" if value else f"{setting.name} is set in {line}"
        findings.append(
            Finding(
                seconds,
                f"{where}: {setting.text}",
                f"Start the program without {setting.name}.",
                line,
                bound_seconds=account.step_seconds - seconds,
                value=setting.name if value else "",
            )
        )
    return max(findings, key=lambda finding: finding.seconds, default=None)


SETTINGS: Final = (CauseRule("debugging", "a setting for debugging", HOST, 0.08, _debugging),)
