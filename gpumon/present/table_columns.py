"""The tables whose columns a user can choose, and the ids of their columns."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpumon.present.alerts import ALERT_COLUMNS
from gpumon.present.cost import CALL_COLUMNS
from gpumon.present.overview_table import OVERVIEW_COLUMNS
from gpumon.present.paint.table import Column
from gpumon.present.process_list import listed_columns
from gpumon.present.process_table import PROCESS_COLUMNS
from gpumon.present.workloads import RUN_COLUMNS, WORKLOAD_COLUMNS


def column_ids() -> Mapping[str, tuple[str, ...]]:
    """Column ids by the id of the table, in the order of the columns."""
    tables: Mapping[str, Sequence[Column[Any]]] = {
        "devices": OVERVIEW_COLUMNS,
        "processes": PROCESS_COLUMNS,
        "all-processes": listed_columns(()),
        "alerts": ALERT_COLUMNS,
        "workloads": WORKLOAD_COLUMNS,
        "runs": RUN_COLUMNS,
        "calls": CALL_COLUMNS,
    }
    return {name: tuple(column.id for column in columns if column.id) for name, columns in tables.items()}
