"""Causes in the training loop: what the main thread does in addition to the model, and settings for debugging.

Settings are variables of the environment, and arguments in the source of the program.
"""

import re
from typing import Final, NamedTuple

from gpumon.core.step_classes import COLLECTION, COMMUNICATION, EVALUATION, HOST, IDLE, LOGGING, SYNC
from gpumon.insight.bottlenecks.cause import NO_LINE, Finding, main_kind, main_line, where_text
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
        if value.upper() in {"", "0", "OFF", "INFO"} and not line:
            continue
        seconds = sum(account.share_of(name).cost_seconds for name in setting.classes)
        where = f"{setting.name}={value}" if value else f"{setting.name} is set in {line}"
        findings.append(
            Finding(
                seconds,
                f"{where}: {setting.text}",
                line,
                f"Start the program without {setting.name}.",
                bound_seconds=account.step_seconds - seconds,
                value=setting.name if value else "",
            )
        )
    return max(findings, key=lambda finding: finding.seconds, default=None)


SETTINGS: Final = (_debugging,)
"""The conditions, which causes.txt names."""


_DISK_WAIT: Final = 0.2


def _collection(evidence: SlownessEvidence) -> Finding | None:
    share = evidence.account.share_of(COLLECTION)
    if not share.cost_seconds:
        return None
    if any("gc.collect(" in part.name for part in share.top):
        text = f"the program calls gc.collect(){where_text(share)}"
        return Finding(share.cost_seconds, text, main_line(share), experiment="Remove the call of gc.collect().")
    return Finding(share.cost_seconds, "Python's garbage collector visits many objects")


def _logging(evidence: SlownessEvidence) -> Finding | None:
    share = evidence.account.share_of(LOGGING)
    if not share.cost_seconds:
        return None
    is_network = main_kind(share) == "network"
    what = "the main thread waits for the network" if is_network else "the main thread writes logs or files"
    waits = evidence.host.disk_wait_share or 0.0
    if waits >= _DISK_WAIT:
        what += f" and waits for a disk in {waits:.0%} of the samples"
    return Finding(share.cost_seconds, f"{what}{where_text(share)}", main_line(share))


def _evaluation(evidence: SlownessEvidence) -> Finding | None:
    share = evidence.account.share_of(EVALUATION)
    if not share.seconds:  # an evaluation that only some steps have is a pause and no disease
        return None
    return Finding(share.seconds, f"every step evaluates{where_text(share)}", main_line(share))


LOOP: Final = (_collection, _logging, _evaluation)
"""The conditions, which causes.txt names."""
