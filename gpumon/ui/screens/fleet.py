"""The fleet: a map of all hosts, tables of hosts, GPUs, jobs and users, what stands out, and the usage."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from textual import on
from textual.app import ComposeResult

from gpumon.fleet.settings import FleetSettings, HostsSettings
from gpumon.operations.fleet.history import device_key
from gpumon.operations.fleet.queries import (
    DEFAULT_SECONDS,
    RANGES,
    FleetList,
    UsageRow,
    finding_query,
    list_query,
    usage_query,
    with_users,
)
from gpumon.operations.fleet.report import FleetGroup, FleetReport
from gpumon.present.fleet import FLEET_USAGE_COLUMNS, empty_text, fleet_header, lacks_line, list_line, query_line
from gpumon.present.fleet_map import FleetMetric, MapRow, map_columns, map_rows
from gpumon.present.fleet_tables import (
    FLEET_FINDING_COLUMNS,
    FLEET_GPU_COLUMNS,
    FLEET_HOST_COLUMNS,
    FLEET_JOB_COLUMNS,
    FLEET_USER_COLUMNS,
    FindingRow,
    GpuRow,
    without_slurm,
)
from gpumon.present.paint.table import Column
from gpumon.session.app_session import Demand
from gpumon.session.fleet_registry import FleetState
from gpumon.session.view_state import ViewState
from gpumon.ui.keymap import Bindings, key
from gpumon.ui.messages import FleetHostRequested, FleetRefreshRequested, ViewStateRequested
from gpumon.ui.screens.base import ViewScreen
from gpumon.ui.widgets.footer import Footer
from gpumon.ui.widgets.line_table import LineTable
from gpumon.ui.widgets.table_view import TableView
from gpumon.ui.widgets.text_lines import TextLines

_AGE_SECONDS: Final = 1.0
_MIN_HEIGHT_FOR_QUERY: Final = 14
_MIN_HEIGHT_FOR_LACKS: Final = 24
_LISTS: Final = tuple(FleetList)


class FleetMap(TableView[MapRow]):
    """The map, whose rows are hosts; the key that sorts tables maps another value."""

    BINDINGS: ClassVar[Bindings] = [key("fleet-map.sort", "Sort", "Map another value, or the idle hosts first")]

    def __init__(self) -> None:
        super().__init__(LineTable(id="fleet-map"), lambda row: row.host.name)
        self.metric = FleetMetric.UTILIZATION

    def action_sort(self) -> None:
        self.metric = self.metric.next
        self.post_message(ViewStateRequested())


class FleetScreen(ViewScreen[None]):
    """The GPUs of many hosts."""

    PAGE: ClassVar[str] = "docs/fleet.md"
    TAB: ClassVar[str] = "Fleet"
    AUTO_FOCUS: ClassVar[str] = "#fleet-map"
    BINDINGS: ClassVar[Bindings] = [
        key("fleet.view", "Next list", "Map, hosts, GPUs, jobs, users, findings, usage", "list(1)"),
        key("fleet.next-field", "List", "Next list", "list(1)", show=False, priority=True),
        key("fleet.previous-field", "List", "Previous list", "list(-1)", show=False, priority=True),
        key("fleet.run", "Read again", "Query Prometheus, or connect to hosts that failed, now", "read"),
        key("fleet.new", "Hosts", "Read other hosts through ssh", "hosts", show=False),
        key("fleet.zoom-in", "Range", "Usage of less time", "range(-1)", display="z/x"),
        key("fleet.zoom-out", "Range", "Usage of more time", "range(1)", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.front = FleetList.MAP
        self.usage_seconds = DEFAULT_SECONDS
        self._state: FleetState | None = None
        self._is_paused = False
        self._made_for: FleetReport | None = None
        self._made: dict[tuple[FleetList, FleetMetric], Sequence[Any]] = {}
        """Rows of the lists of that report."""
        self._drawn: tuple[object, ...] = ()
        """What the table in front was filled for."""
        self._map = FleetMap()
        self._hosts = TableView[FleetGroup](LineTable(id="fleet-hosts"), lambda row: row.name)
        self._gpus = TableView[GpuRow](LineTable(id="fleet-gpus"), _gpu_key)
        self._jobs = TableView[FleetGroup](LineTable(id="fleet-jobs"), lambda row: row.name)
        self._users = TableView[FleetGroup](LineTable(id="fleet-users"), lambda row: row.name)
        self._findings = TableView[FindingRow](LineTable(id="fleet-findings"), _finding_key)
        self._usage = TableView[UsageRow](LineTable(id="fleet-usage"), lambda row: f"{row.user}/{row.job}")
        self._tables: dict[FleetList, TableView[Any]] = {
            FleetList.MAP: self._map,
            FleetList.HOSTS: self._hosts,
            FleetList.GPUS: self._gpus,
            FleetList.JOBS: self._jobs,
            FleetList.USERS: self._users,
            FleetList.FINDINGS: self._findings,
            FleetList.USAGE: self._usage,
        }

    def compose(self) -> ComposeResult:
        yield from self.compose_top("fleet-header", "fleet-lists")
        for kind, table in self._tables.items():
            table.display = kind is self.front
            yield table
        yield TextLines(id="fleet-lacks")
        yield TextLines(id="fleet-query")
        yield Footer()

    def on_mount(self) -> None:
        """Keep the age of the values current."""
        super().on_mount()
        self.set_interval(_AGE_SECONDS, self._draw_age)

    @property
    def demand(self) -> Demand:
        """The fleet, and the usage while its list is in front."""
        return Demand(fleet=True, usage_seconds=self.usage_seconds if self.front is FleetList.USAGE else 0.0)

    @property
    def text_to_copy(self) -> str:
        """The PromQL of the list in front; empty without Prometheus."""
        return self._query

    def action_hosts(self) -> None:
        from gpumon.ui.screens.fleet_setup import FleetSetupScreen  # late: few sessions need it

        settings = None if self._state is None else self._state.settings
        self.app.push_screen(FleetSetupScreen(settings.hosts if isinstance(settings, HostsSettings) else ()))

    def show(self, state: ViewState) -> None:
        """Draw the fleet. A table is filled only for another snapshot, another list or another size."""
        fleet = self._state if state.is_paused and self._state is not None else state.fleet
        if fleet is None:
            return
        self._state, self._is_paused = fleet, state.is_paused
        self._draw(fleet)

    def _draw(self, fleet: FleetState) -> None:
        width, height = self.size
        self._lines("fleet-header").show(fleet_header(fleet, width))
        self._lines("fleet-lists").show([list_line(fleet, self.front, self.usage_seconds, width)])
        lacks = () if fleet.report is None or height < _MIN_HEIGHT_FOR_LACKS else lacks_line(fleet.report, width)
        self._lines("fleet-lacks").show([lacks] if lacks else [])
        shown = (self.front, fleet.report, fleet.usage, fleet.is_reading_usage, self._map.metric, self.usage_seconds)
        if shown != self._drawn:
            self._drawn = shown
            self._fill(fleet)
        self._show_query()

    @on(LineTable.CursorMoved)
    def follow_cursor(self) -> None:
        """The PromQL of findings is that of the one under the cursor."""
        if self.front is FleetList.FINDINGS:
            self._show_query()

    @on(LineTable.RowChosen)
    def open_row(self, chosen: LineTable.RowChosen) -> None:
        """Open a host or a GPU over time, or list the GPUs of a job or a user."""
        row = self._tables[self.front].row(chosen.key)
        if isinstance(row, MapRow):
            self.post_message(FleetHostRequested(row.host.name))
        elif isinstance(row, GpuRow):
            self.post_message(FleetHostRequested(row.gpu.host, device_key(row.gpu)))
        elif isinstance(row, FindingRow):
            self.post_message(FleetHostRequested(row.finding.host, None if row.gpu is None else device_key(row.gpu)))
        elif isinstance(row, UsageRow):
            self._show_gpus(f"job:{row.job}" if row.job else f"user:{row.user}")
        elif isinstance(row, FleetGroup) and self.front is FleetList.HOSTS:
            self.post_message(FleetHostRequested(row.name))
        elif isinstance(row, FleetGroup):
            self._show_gpus(f"{'job' if self.front is FleetList.JOBS else 'user'}:{row.name}")

    def conditions(self) -> Mapping[str, bool]:
        return {"range": self.front is FleetList.USAGE}

    def action_list(self, step: int) -> None:
        self._bring_to_front(_LISTS[(_LISTS.index(self.front) + step) % len(_LISTS)])

    def action_read(self) -> None:
        self.post_message(FleetRefreshRequested())

    def action_range(self, step: int) -> None:
        index = RANGES.index(self.usage_seconds) + step
        self.usage_seconds = RANGES[max(0, min(len(RANGES) - 1, index))]
        self.post_message(ViewStateRequested())

    def _bring_to_front(self, kind: FleetList) -> None:
        self.front = kind
        with self.app.batch_update():  # filled before it is painted, so that it is painted once
            for other, table in self._tables.items():
                table.display = other is kind
            self.set_focus(self._tables[kind].table)  # at once: the next key may already wait
            self.refresh_bindings()
            if self._state is not None:
                self._draw(self._state)
        self.post_message(ViewStateRequested())

    def _show_gpus(self, text: str) -> None:
        """List the GPUs that match a filter; a filter has no spaces in a value."""
        self._gpus.set_filter(text.partition(" ")[0])
        self._bring_to_front(FleetList.GPUS)

    def _fill(self, fleet: FleetState) -> None:
        report, empty = fleet.report, empty_text(fleet, self.front)
        if self.front is FleetList.MAP:
            rows = self._rows(report, lambda report: map_rows(report, self._map.metric))
            self._map.show(map_columns(report, self._map.metric), rows, empty)
        elif self.front is FleetList.USAGE:
            usage = None if fleet.usage is None or fleet.usage.seconds != self.usage_seconds else fleet.usage
            rows = () if usage is None or report is None else with_users(usage.rows, report.slurm_jobs)
            self._usage.show(FLEET_USAGE_COLUMNS, rows, empty)
        else:
            columns, rows_of = _CONTENT[self.front]
            if report is None or not report.slurm_jobs:
                columns = _WITHOUT_SLURM.get(self.front, columns)
            self._tables[self.front].show(columns, self._rows(report, rows_of), empty)

    def _rows(self, report: FleetReport | None, rows_of: Callable[[FleetReport], Sequence[Any]]) -> Sequence[Any]:
        """The rows of the list in front, which are made once for a report: there may be thousands."""
        if report is None:
            return ()
        key = (self.front, self._map.metric)
        if self._made_for is not report:
            self._made_for, self._made = report, {}
        if key not in self._made:
            self._made[key] = rows_of(report)
        return self._made[key]

    def _show_query(self) -> None:
        is_shown = self._state is not None and self.size.height >= _MIN_HEIGHT_FOR_QUERY
        lines = [query_line(self._query, self.size.width)] if is_shown else []
        self._lines("fleet-query").show(lines)

    @property
    def _query(self) -> str:
        fleet = self._state
        if fleet is None or not isinstance(fleet.settings, FleetSettings):
            return ""
        exporters = () if fleet.report is None else tuple(fleet.report.snapshot.exporters)
        match, finding = fleet.settings.match, self._findings.selected
        if self.front is FleetList.USAGE:
            return usage_query(exporters, self.usage_seconds, match)
        if self.front is FleetList.FINDINGS and finding is not None:
            return finding_query(finding.finding.kind, exporters, match, fleet.settings.idle_seconds)
        return list_query(self.front, exporters, match)

    def _draw_age(self) -> None:
        if self.is_current and not self._is_paused:
            self.post_message(ViewStateRequested())


def _gpu_key(row: GpuRow) -> str:
    gpu = row.gpu
    return f"{gpu.host}/{gpu.label}"


def _finding_key(row: FindingRow) -> str:
    gpu = row.gpu
    return f"{row.finding.kind.name}/{row.finding.host}/{'' if gpu is None else gpu.label}"


def _gpu_rows(report: FleetReport) -> Sequence[GpuRow]:
    return [GpuRow(report, position) for position in range(len(report.snapshot.gpus))]


_CONTENT: Final[dict[FleetList, tuple[Sequence[Column[Any]], Callable[[FleetReport], Sequence[Any]]]]] = {
    FleetList.HOSTS: (FLEET_HOST_COLUMNS, lambda report: report.hosts),
    FleetList.GPUS: (FLEET_GPU_COLUMNS, _gpu_rows),
    FleetList.JOBS: (FLEET_JOB_COLUMNS, lambda report: report.jobs),
    FleetList.USERS: (FLEET_USER_COLUMNS, lambda report: report.users),
    FleetList.FINDINGS: (
        FLEET_FINDING_COLUMNS,
        lambda report: [FindingRow(report, finding) for finding in report.findings],
    ),
}
"""Columns and rows of the lists that are made of a report alone."""
_WITHOUT_SLURM: Final[dict[FleetList, Sequence[Column[Any]]]] = {
    kind: without_slurm(_CONTENT[kind][0]) for kind in (FleetList.HOSTS, FleetList.JOBS, FleetList.USERS)
}
