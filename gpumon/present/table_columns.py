"""The tables whose columns a user can choose, and the ids of their columns."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpumon.present.alerts import ALERT_COLUMNS
from gpumon.present.cost import CALL_COLUMNS
from gpumon.present.error_list import ERROR_COLUMNS
from gpumon.present.fleet import FLEET_USAGE_COLUMNS
from gpumon.present.fleet_map import FleetMetric, map_columns
from gpumon.present.fleet_tables import (
    FLEET_FINDING_COLUMNS,
    FLEET_GPU_COLUMNS,
    FLEET_HOST_COLUMNS,
    FLEET_JOB_COLUMNS,
    FLEET_USER_COLUMNS,
)
from gpumon.present.jobs import JOB_COLUMNS
from gpumon.present.overview_table import OVERVIEW_COLUMNS
from gpumon.present.paint.table import Column
from gpumon.present.process_list import listed_columns
from gpumon.present.process_table import PROCESS_COLUMNS
from gpumon.present.ranks import RANK_COLUMNS
from gpumon.present.trace_tables import GAP_COLUMNS, KERNEL_COLUMNS
from gpumon.present.workloads import RUN_COLUMNS, WORKLOAD_COLUMNS


def column_ids() -> Mapping[str, tuple[str, ...]]:
    """Column ids by the id of the table, in the order of the columns."""
    tables: Mapping[str, Sequence[Column[Any]]] = {
        "devices": OVERVIEW_COLUMNS,
        "processes": PROCESS_COLUMNS,
        "all-processes": listed_columns(()),
        "jobs": JOB_COLUMNS,
        "ranks": RANK_COLUMNS,
        "alerts": ALERT_COLUMNS,
        "workloads": WORKLOAD_COLUMNS,
        "runs": RUN_COLUMNS,
        "calls": CALL_COLUMNS,
        "errors": ERROR_COLUMNS,
        "fleet-map": map_columns(None, FleetMetric.UTILIZATION),
        "fleet-hosts": FLEET_HOST_COLUMNS,
        "fleet-gpus": FLEET_GPU_COLUMNS,
        "fleet-jobs": FLEET_JOB_COLUMNS,
        "fleet-users": FLEET_USER_COLUMNS,
        "fleet-findings": FLEET_FINDING_COLUMNS,
        "fleet-usage": FLEET_USAGE_COLUMNS,
        "kernels": KERNEL_COLUMNS,
        "gaps": GAP_COLUMNS,
    }
    return {name: tuple(column.id for column in columns if column.id) for name, columns in tables.items()}
