"""Checks of the values and of every screen, opened with its key and by its name in the command palette."""

import os
from typing import Final

from textual.command import Command, CommandPalette
from textual.events import Paste
from textual.widgets import Button, Input, OptionList

from gpumon.core.metrics import METRICS
from gpumon.core.model import DeviceState
from gpumon.core.problems import Problem
from gpumon.core.store import HISTORY_BUCKETS
from gpumon.core.units import bytes_text
from gpumon.health.checks import FailedError, SkippedError
from gpumon.operations.waterfall import waterfall
from gpumon.present.explain import SAMPLE
from gpumon.ui.screens.alerts import AlertsScreen
from gpumon.ui.screens.chart_choices import ChartChoiceScreen
from gpumon.ui.screens.cost import CostScreen
from gpumon.ui.screens.device import DeviceScreen
from gpumon.ui.screens.doctor import DoctorScreen
from gpumon.ui.screens.explain import ExplainScreen
from gpumon.ui.screens.fleet import FleetScreen
from gpumon.ui.screens.help import HelpScreen
from gpumon.ui.screens.jobs import JobsScreen
from gpumon.ui.screens.memory import MemoryScreen
from gpumon.ui.screens.process import ProcessScreen
from gpumon.ui.screens.processes import ProcessesScreen
from gpumon.ui.screens.topology import TopologyScreen
from gpumon.ui.screens.why import WhyScreen
from gpumon.ui.screens.workload_form import WorkloadForm
from gpumon.ui.screens.workloads import WorkloadsScreen
from gpumon.ui.selftest.walk import Walk
from gpumon.ui.widgets.fields import ParameterField
from gpumon.ui.widgets.line_table import LineTable
from gpumon.workload_runs.catalogue import Catalogue
from gpumon.workload_runs.parameters import ParameterKind

FIRST_FRAMES_SECONDS: Final = 15.0
_LOADING_SECONDS: Final = 12.0
_DOCTOR_SECONDS: Final = 8.0
_PALETTE_SECONDS: Final = 3.0
SCREEN_NAMES: Final = (
    "processes",
    "memory",
    "jobs",
    "workloads",
    "alerts",
    "explain",
    "doctor",
    "help",
    "topology",
    "fleet",
    "cost",
)
"""Every screen that an action of the app opens, by the name of the action."""


async def frames(walk: Walk) -> str:
    """Two samples arrive, and the driver responds."""
    times: set[float] = set()

    def has_two() -> bool:
        frame = walk.app.session.store.frame
        if frame is not None:
            times.add(frame.monotonic_seconds)
        return len(times) > 1

    await walk.wait(has_two, FIRST_FRAMES_SECONDS)
    if not times:
        raise FailedError(str(walk.stream.problem or "no frame has arrived"))
    problem = walk.frame.problems.get("driver")
    if problem is not None:
        raise FailedError(str(problem))
    return f"{len(walk.frame.gpus)} GPUs, driver {walk.frame.driver_version}"


async def values(walk: Walk) -> str:
    """Every metric has a value or a reason, and each GPU has at least one value."""
    responding = [device for device in walk.frame.devices if device.state is DeviceState.OK]
    for device in responding:
        unexplained = [name for name in METRICS if name not in device.readings and name not in device.problems]
        if unexplained:
            raise FailedError(f"GPU {device.label} lacks {', '.join(unexplained)} without a reason")
        if not device.readings:
            raise FailedError(f"GPU {device.label} responds, but has no values")
    count = sum(len(device.readings) for device in responding)
    return f"{count} of {len(METRICS) * len(responding)} values, each other one with its reason"


async def overview(walk: Walk) -> str:
    """Every GPU has a row."""
    await walk.pilot.press("escape")  # ends the tour of the demo
    await walk.save("overview")
    rows = walk.table("devices").rows
    if len(rows) != len(walk.frame.devices):
        raise FailedError(f"{len(rows)} rows for {len(walk.frame.devices)} GPUs")
    return f"{len(rows)} rows"


async def device(walk: Walk) -> str:
    """Every chart has points, the keys for time and metrics work, and every metric has a row."""
    walk.table("devices").cursor = _most_active(walk)
    async with walk.opened("enter", DeviceScreen, "device-chart") as screen:
        await walk.pilot.press("x", "left", "n", "z")
        async with walk.opened("c", ChartChoiceScreen, "metrics"):
            pass
        rows = screen.query_one("#details", LineTable).rows
        if len(rows) < len(METRICS):
            raise FailedError(f"{len(rows)} rows for {len(METRICS)} metrics")
        shown = next(device for device in walk.frame.devices if device.key == screen.key)
        drawn = [chart for chart in screen.charts if chart.rows and shown.get(chart.metric) is not None]
        empty = [chart.metric for chart in drawn if chart.summary is None]
        if empty:
            raise FailedError(f"the chart of {', '.join(empty)} has no points")
        return f"{len(drawn)} charts with points, {len(rows)} rows"


async def memory(walk: Walk) -> str:
    """Every byte of a GPU is part of a row."""
    probes = walk.app.session.shown_probes.probes
    used = [
        (any(process.pid in probes for process in device.processes or ()), device.get("memory_used_bytes") or 0)
        for device in walk.frame.devices
    ]
    walk.table("devices").cursor = used.index(max(used))
    async with walk.opened("3", MemoryScreen, "memory") as screen:
        device = next((device for device in walk.frame.devices if device.key == screen.key), None)
        if device is None or waterfall(device, {}).problem is not None:
            raise SkippedError("this GPU does not report its memory")
        rows = screen.query_one("#parts", LineTable).rows
        if not rows or screen.parts_bytes != device.get("memory_total_bytes"):
            raise FailedError(f"{len(rows)} parts with {screen.parts_bytes} bytes in total")
        return f"{len(rows)} rows, {bytes_text(screen.parts_bytes)} in total"


async def process(walk: Walk) -> str:
    """A process has a screen with its values."""
    processes = walk.table("processes")
    if not processes.rows:
        raise SkippedError("no process uses a GPU")
    processes.focus()
    try:
        async with walk.opened("enter", ProcessScreen, "process") as screen:
            return f"{len(screen.query_one('#details', LineTable).rows)} rows"
    finally:
        walk.table("devices").focus()


async def processes(walk: Walk) -> str:
    """Every process of every GPU has a row, and the rows can be grouped."""
    async with walk.opened("2", ProcessesScreen, "processes") as screen:
        count = sum(len(device.processes or ()) for device in walk.frame.devices)
        shown = [row for row in screen.query_one("#all-processes", LineTable).rows if row.key.rpartition("/")[2]]
        if len(shown) != count:
            raise FailedError(f"{len(shown)} rows for {count} processes")
        await walk.pilot.press("t", "t", "t", "t")
        return f"{len(shown)} rows"


async def jobs(walk: Walk) -> str:
    """Every training job of this host has a row."""
    async with walk.opened("4", JobsScreen, "jobs") as screen:
        registry = walk.app.session.jobs
        if walk.app.session.home.is_this_host:
            await walk.wait(lambda: registry.state.is_read, _LOADING_SECONDS)
            if not registry.state.is_read:
                raise FailedError("the jobs were not read")
        state = walk.app.session.view_state()
        reports = () if state is None else state.jobs.reports
        rows = screen.query_one("#jobs", LineTable).rows
        if reports and len(rows) < len(reports):
            raise FailedError(f"{len(rows)} rows for {len(reports)} jobs")
        return f"{len(reports)} jobs"


async def cost(walk: Walk) -> str:
    """The costs of gpumon have rows."""
    async with walk.opened("C", CostScreen, "cost") as screen:
        rows = screen.query_one("#details", LineTable).rows
        if not rows:
            raise FailedError("no costs")
        return f"{len(rows)} rows"


async def why(walk: Walk) -> str:
    """The screen on a slow training run asks before it loads the probe into this process, or explains what it needs."""
    screen = WhyScreen(os.getpid())
    await walk.app.push_screen(screen)
    await walk.wait(lambda: screen.report is not None or walk.app.screen is not screen, _LOADING_SECONDS)
    await walk.pilot.pause(0.1)
    await walk.save("why")
    if walk.app.screen is not screen:
        await walk.pilot.press("escape")
        await walk.wait(lambda: walk.app.screen is screen, _PALETTE_SECONDS)
        await walk.pilot.press("escape")
        return "asks before it loads the probe"
    report = screen.report
    assert report is not None
    if not isinstance(report, Problem) and "passive" in report.stages:
        raise FailedError("the selftest has a probe")
    await walk.pilot.press("escape")
    await walk.pilot.pause(0.05)
    return report.reason if isinstance(report, Problem) else f"observed from outside for {report.seconds:.1f} s"


async def topology(walk: Walk) -> str:
    """The connections of the GPUs are read, or there is a reason."""
    async with walk.opened("L", TopologyScreen, "topology") as screen:
        await walk.wait(lambda: screen.result is not None, _LOADING_SECONDS)
        await walk.save("topology")
        if screen.result is None:
            raise FailedError("the topology was not read")
        return f"{len(screen.query_one('#topology', LineTable).rows)} lines"


async def alerts(walk: Walk) -> str:
    """Every alert has a row."""
    async with walk.opened("6", AlertsScreen, "alerts") as screen:
        walk.app.drawing.redraw()
        state = walk.app.session.view_state()
        rows = screen.query_one("#alerts", LineTable).rows
        if state is None or len(rows) != len(state.alerts) + len(state.alerts_over):
            raise FailedError(f"{len(rows)} rows for current and past alerts")
        return f"{len(state.alerts)} alerts, {len(state.alerts_over)} over"


async def fleet(walk: Walk) -> str:
    """The fleet opens, with values or with a reason."""
    registry = walk.app.session.fleet
    if registry is None:
        raise SkippedError("no Prometheus is configured")
    async with walk.opened("9", FleetScreen, "fleet") as screen:
        await walk.wait(lambda: registry.state().report is not None, _LOADING_SECONDS)
        state = registry.state()
        if state.report is None:
            raise SkippedError(str(state.problem or "Prometheus has not answered"))
        await walk.save("fleet")
        rows = screen.query_one("#fleet-map", LineTable).rows
        if len(rows) < len(state.report.by_host):
            raise FailedError(f"{len(rows)} rows for {len(state.report.by_host)} hosts")
        return f"{len(state.report.snapshot.gpus)} GPUs"


async def help_page(walk: Walk) -> str:
    """The help opens."""
    async with walk.opened("question_mark", HelpScreen, "help"):
        return "opened and closed"


async def explain(walk: Walk) -> str:
    """A pasted error is explained."""
    async with walk.opened("7", ExplainScreen, "explain") as screen:
        walk.app.post_message(Paste(SAMPLE))
        await walk.wait(lambda: screen.explanation is not None, _LOADING_SECONDS)
        cause = None if screen.explanation is None else screen.explanation.cause
        await walk.save("explain")
        if cause is None or cause.error.id != "oom":
            raise FailedError("an out-of-memory error is not recognized")
        return f"{cause.error.id}, {len(screen.query_one('#meaning', LineTable).rows)} lines"


async def doctor(walk: Walk) -> str:
    """The checks appear, whatever their results are on this host."""
    async with walk.opened("8", DoctorScreen, "doctor") as screen:
        await walk.wait(lambda: screen.is_over, _DOCTOR_SECONDS)
        await walk.save("doctor")
        shown = {row.key for row in screen.query_one("#checks", LineTable).rows}
        missing = [check.id for check in screen.checks if check.fix and f"{check.id}/0" not in shown]
        if missing or not shown:
            raise FailedError(f"{len(shown)} rows, and none for {', '.join(missing) or 'any check'}")
        return f"{len(screen.checks)} checks{'' if screen.is_over else ' so far'}"


async def workloads(walk: Walk) -> str:
    """The list and a form open, and the form rejects an invalid value; nothing is started."""
    async with walk.opened("5", WorkloadsScreen, "workloads") as screen:
        controller = walk.app.session.workloads
        await walk.wait(lambda: controller.catalogue is not None, _LOADING_SECONDS)
        catalogue = controller.catalogue
        if catalogue is None or not catalogue.workloads:
            raise FailedError("there are no workloads")
        await walk.save("workloads")
        screen.query_one("#workloads", LineTable).cursor = _first_with_numbers(catalogue)
        async with walk.opened("enter", WorkloadForm, "workload_form") as form:
            await _type_invalid_value(walk, form)
        return f"{len(catalogue.workloads)} workloads, {len(catalogue.broken)} invalid files"


async def palette(walk: Walk) -> str:
    """The command palette finds every screen by its name, and opens one."""
    await walk.pilot.press("ctrl+p")
    screen = walk.expect(CommandPalette)
    for name in SCREEN_NAMES:
        if name == "fleet" and walk.app.session.fleet is None:
            continue
        screen.query_one(Input).value = name
        await walk.wait(lambda name=name: _first_command(screen) == name, _PALETTE_SECONDS)  # type: ignore[misc]
        if _first_command(screen) != name:
            await walk.pilot.press("escape")
            raise FailedError(f"the command palette does not find {name!r}")
    await walk.pilot.press("enter")
    await walk.wait(lambda: isinstance(walk.app.screen, CostScreen), _PALETTE_SECONDS)
    walk.expect(CostScreen)
    await walk.pilot.press("escape")
    await walk.pilot.pause(0.05)
    return f"{len(SCREEN_NAMES)} screens by name"


def _first_command(screen: CommandPalette) -> str:
    """The first command that the palette offers, in lower case; empty if there is none."""
    options = screen.query_one(OptionList)
    first = options.get_option_at_index(0) if options.option_count else None
    return str(first.hit.text).lower() if isinstance(first, Command) else ""


async def _type_invalid_value(walk: Walk, form: WorkloadForm) -> None:
    field = next((field for field in form.query(ParameterField) if field.query(Input)), None)
    if field is None:
        return
    field.query_one(Input).focus()
    await walk.pilot.press("end", "x")
    await walk.save("workload_form")
    if not field.error or not form.query_one("#start", Button).disabled:
        raise FailedError(f"the form accepts {field.text!r} for {field.parameter.name}")


def _first_with_numbers(catalogue: Catalogue) -> int:
    """Row of the first workload with a parameter to type; the first row if there is none."""
    numbers = {ParameterKind.INTEGER, ParameterKind.NUMBER}
    kinds = [{parameter.kind for parameter in workload.parameters} for workload in catalogue.workloads]
    return next((row for row, kinds_of_row in enumerate(kinds) if kinds_of_row & numbers), 0)


def _most_active(walk: Walk) -> int:
    """Row of the GPU whose power has changed most: its charts have the most to show."""
    spans = [_span(walk, device.key) for device in walk.frame.devices]
    return spans.index(max(spans))


def _span(walk: Walk, key: str) -> float:
    history = walk.app.session.store.history(key, "power_watts", HISTORY_BUCKETS)
    known = [value for value in history if value is not None]
    return max(known, default=0.0) - min(known, default=0.0)
