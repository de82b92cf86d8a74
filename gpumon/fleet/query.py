"""The PromQL of the fleet. One instant query has everything that the screen shows.

Its parts are joined with ``or``, which ignores the names of metrics; the label ``gpumon`` distinguishes the parts. Only
one metric of a GPU comes with all labels, and the others with its UUID, which halves the answer for thousands of GPUs.
"""

from typing import Final

from gpumon.core.device_use import IDLE_PERCENT
from gpumon.fleet.exporters import DCGM_XIDS, EXPORTERS, GPUMON_XIDS, HISTORY_ONLY, PODS, Exporter
from gpumon.fleet.model import IDLE_SECONDS

PART: Final = "gpumon"
"""Label that names the part of the query; values have none."""
BUSIEST_OF: Final = "busiest "
TIME_OF: Final = "time "
"""These two are followed by the name of the exporter."""
OWNER: Final = "owner"
XID: Final = "xid"
INDEX: Final = "index"
INFO: Final = "info"
SILENT: Final = "silent"
DOWN: Final = "down"
_BEFORE: Final = ("10m", "1h")
"""When GPUs that report nothing now had to report."""
UUIDS: Final = tuple(dict.fromkeys(label for exporter in EXPORTERS for label in exporter.uuids))
"""Every label that contains a UUID."""
HOSTS: Final = ("instance", *dict.fromkeys(label for exporter in EXPORTERS for label in exporter.hosts))
"""Every label that names a host or is used in place of its name."""
MIG_LABEL: Final = "GPU_I_ID"
"""Distinguishes the MIG devices of a GPU, which have its UUID."""
IDENTITY: Final = (*UUIDS, MIG_LABEL)
"""Labels that identify a GPU."""
_LABELS: Final = (
    "__name__",
    *HOSTS,
    *IDENTITY,
    *dict.fromkeys(label for exporter in EXPORTERS for label in (*exporter.indexes, *exporter.models, *exporter.jobs)),
    *PODS,
)


def fleet_query(match: str = "", idle_seconds: float = IDLE_SECONDS) -> str:
    """The query of the screen.

    Args:
        match: Further label matchers of every metric, such as ``cluster="a"``.
        idle_seconds: The time whose highest utilization is read, of GPUs that report for that long.
    """
    primaries = [exporter.primary for exporter in EXPORTERS]
    primary = selector(match, *primaries)
    others = [
        name
        for exporter in EXPORTERS
        for name, metric in exporter.metrics.items()
        if name != exporter.primary and metric.id not in HISTORY_ONLY
    ]
    owners = selector(match, "gpumon_process_gpu_memory_bytes")
    up = f"up{{{match}}}"
    parts = [  # the largest last: `or` hashes everything to its left again
        _part(DOWN, f"max by (instance) ({up} == 0 and on (job) max by (job) ({primary}))"),
        _part(SILENT, silent_query(match)),
        _part(OWNER, f"sum by (uuid, user, hpc_job, {', '.join(PODS)}) ({owners})"),
        _part(XID, xid_query(match)),
        *(part for exporter in EXPORTERS for part in _exporter_parts(exporter, match, idle_seconds)),
        f"max by ({', '.join(_LABELS)}) ({primary})",
        f"max by (__name__, {', '.join(IDENTITY)}) ({selector(match, *others)})",
    ]
    return " or ".join(parts)


def silent_query(match: str = "") -> str:
    """How many GPUs of each host reported within the last hour, and report nowhere now."""
    primary = selector(match, *(exporter.primary for exporter in EXPORTERS))
    before = " or ".join(f"{primary} offset {offset}" for offset in _BEFORE)
    return f"count by ({', '.join(HOSTS)}) (({before}) unless on ({', '.join(UUIDS)}) {primary})"


def xid_query(match: str = "") -> str:
    """GPUs with an Xid."""
    return " or ".join(
        [
            f"max by ({', '.join(IDENTITY)}) ({selector(match, DCGM_XIDS)}) != 0",
            f"max by (uuid, xid) ({selector(match, GPUMON_XIDS)}) > 0",
        ]
    )


def idle_query(exporter: Exporter, match: str = "", idle_seconds: float = IDLE_SECONDS) -> str:
    """The highest utilization of GPUs that have been idle for some time; those that report for less are left out."""
    primary, window = selector(match, exporter.primary), f"{idle_seconds:.0f}s"
    limit = IDLE_PERCENT / exporter.metrics[exporter.primary].factor
    busiest = f"max by ({', '.join(IDENTITY)}) (max_over_time({primary}[{window}]))"
    return f"{busiest} < {limit:g} and on ({', '.join(IDENTITY)}) {primary} offset {window}"


def selector(match: str, *names: str) -> str:
    """A selector of metrics by their names."""
    extra = f",{match}" if match else ""
    if len(names) == 1:
        return f"{names[0]}{{{match}}}" if match else names[0]
    return f'{{__name__=~"{"|".join(names)}"{extra}}}'


def _exporter_parts(exporter: Exporter, match: str, idle_seconds: float) -> list[str]:
    """What needs functions that drop the name of the metric, so that units are known by the exporter."""
    primary = selector(match, exporter.primary)
    names = []
    if exporter.index_metric:
        uuids, models = ", ".join(exporter.uuids), ", ".join(exporter.models)
        names = [
            _part(INDEX, f"max by ({uuids}) ({selector(match, exporter.index_metric)})"),
            _part(INFO, f"max by ({uuids}, {models}) ({selector(match, exporter.info_metric)})"),
        ]
    return [
        *names,
        _part(f"{BUSIEST_OF}{exporter.name}", idle_query(exporter, match, idle_seconds)),
        _part(f"{TIME_OF}{exporter.name}", f"min by ({', '.join(HOSTS)}) (timestamp({primary}))"),
    ]


def _part(name: str, expression: str) -> str:
    return f'label_replace({expression}, "{PART}", "{name}", "", "")'
