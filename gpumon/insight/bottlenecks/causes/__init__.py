"""The causes that are looked for: conditions by topic, and their texts in `causes.txt`."""

from typing import Final

from gpumon.core.text_table import table
from gpumon.insight.bottlenecks.cause import CauseRule, Finding, main_line, where_text
from gpumon.insight.bottlenecks.causes.cores import CORES
from gpumon.insight.bottlenecks.causes.data import LOADING
from gpumon.insight.bottlenecks.causes.device import DEVICE
from gpumon.insight.bottlenecks.causes.loop import LOOP, SETTINGS
from gpumon.insight.bottlenecks.causes.other_ranks import RANKS
from gpumon.insight.bottlenecks.slowness_evidence import SlownessEvidence

_CONDITIONS: Final = {find.__name__.lstrip("_"): find for find in (*SETTINGS, *LOADING, *LOOP, *CORES, *DEVICE, *RANKS)}


def _rule(row: str) -> CauseRule:
    cells = ["" if cell == "-" else cell for cell in row.split(" :: ")]
    condition, kind, label, class_name, min_share, options, experiment, text = (*cells, "")[:8]

    def find_class(evidence: SlownessEvidence) -> Finding | None:
        """All time of the class."""
        share = evidence.account.share_of(class_name)
        if not share.cost_seconds:
            return None
        return Finding(share.cost_seconds, f"{text}{where_text(share)}", main_line(share))

    change = next((option.partition("=")[2] for option in options.split() if "=" in option), "")
    find = _CONDITIONS[condition] if condition else find_class
    return CauseRule(kind, label, class_name, float(min_share), find, change, "limit" not in options, experiment)


CAUSES: Final = tuple(map(_rule, table("gpumon.insight.bottlenecks.causes", "causes")))
"""Every cause; of those with the same cost, the first one is the more specific one."""
