"""Every screen is opened by its key and has what it should have."""

from typing import Final

from textual.events import Paste
from textual.widgets import Button, Input

from gpumon.core.metrics import METRICS
from gpumon.core.store import HISTORY_BUCKETS
from gpumon.core.units import bytes_text
from gpumon.diagnosis.checks import FailedError, SkippedError
from gpumon.jobs.catalogue import Catalogue
from gpumon.jobs.parameters import ParameterKind
from gpumon.operations.memory import waterfall
from gpumon.ui.screens.cost import CostScreen
from gpumon.ui.screens.details import DetailsScreen
from gpumon.ui.screens.device import DeviceScreen
from gpumon.ui.screens.doctor import DoctorScreen
from gpumon.ui.screens.explain import ExplainScreen
from gpumon.ui.screens.health import HealthScreen
from gpumon.ui.screens.help import HelpScreen
from gpumon.ui.screens.memory import MemoryScreen
from gpumon.ui.screens.metric_choice import MetricChoiceScreen
from gpumon.ui.screens.workload_form import WorkloadForm
from gpumon.ui.screens.workloads import WorkloadsScreen
from gpumon.ui.selftest.walk import Walk
from gpumon.ui.view.explain import SAMPLE
from gpumon.ui.widgets.line_table import LineTable
from gpumon.ui.widgets.parameter_field import ParameterField

_LOADING_SECONDS: Final = 12.0
_DOCTOR_SECONDS: Final = 8.0


async def overview(walk: Walk) -> str:
    """Every GPU has its row."""
    await walk.save("overview")
    rows = walk.table("devices").rows
    if len(rows) != len(walk.frame.devices):
        raise FailedError(f"{len(rows)} rows for {len(walk.frame.devices)} GPUs")
    return f"{len(rows)} rows"


async def device(walk: Walk) -> str:
    """Every chart has points, keys for time and metrics work, and every figure has its row."""
    walk.table("devices").cursor = _liveliest(walk)
    async with walk.opened("enter", DeviceScreen, "device-chart") as screen:
        await walk.pilot.press("x", "left", "n", "z")
        async with walk.opened("m", MetricChoiceScreen, "metrics"):
            pass
        rows = screen.query_one("#details", LineTable).rows
        if len(rows) < len(METRICS):
            raise FailedError(f"{len(rows)} rows for {len(METRICS)} metrics")
        shown = next(each for each in walk.frame.devices if each.key == screen.key)
        drawn = [each for each in screen.charts if each.rows and shown.get(each.metric) is not None]
        empty = [each.metric for each in drawn if not any(each.columns)]
        if empty:
            raise FailedError(f"the chart of {', '.join(empty)} has no points")
        return f"{len(drawn)} charts with points, {len(rows)} rows"


async def memory(walk: Walk) -> str:
    """Every byte of a GPU is told."""
    walk.table("devices").cursor = _liveliest(walk)
    async with walk.opened("m", MemoryScreen, "memory") as screen:
        device = next((each for each in walk.frame.devices if each.key == screen.key), None)
        if device is None or waterfall(device, {}).problem is not None:
            raise SkippedError("this GPU does not tell its memory")
        rows = screen.query_one("#parts", LineTable).rows
        if not rows or screen.told_bytes != device.get("memory_total_bytes"):
            raise FailedError(f"{len(rows)} parts of together {screen.told_bytes} bytes")
        return f"{len(rows)} rows, all {bytes_text(screen.told_bytes)} told"


async def process(walk: Walk) -> str:
    """A process has its details."""
    processes = walk.table("processes")
    if not processes.rows:
        raise SkippedError("no process is on a GPU")
    processes.focus()
    try:
        async with walk.opened("enter", DetailsScreen, "process") as screen:
            return f"{len(screen.query_one('#details', LineTable).rows)} rows"
    finally:
        walk.table("devices").focus()


async def cost(walk: Walk) -> str:
    """What gpumon costs is told."""
    async with walk.opened("c", CostScreen, "cost") as screen:
        rows = screen.query_one("#details", LineTable).rows
        if not rows:
            raise FailedError("no cost is told")
        return f"{len(rows)} rows"


async def health(walk: Walk) -> str:
    """Every alert has its row."""
    async with walk.opened("a", HealthScreen, "health") as screen:
        walk.app.draw_anew()
        standing = walk.app.feed.scene()
        rows = screen.query_one("#alerts", LineTable).rows
        if standing is None or len(rows) != len(standing.alerts) + len(standing.alerts_over):
            raise FailedError(f"{len(rows)} rows for the alerts that stand and that are over")
        return f"{len(standing.alerts)} alerts, {len(standing.alerts_over)} over"


async def help_page(walk: Walk) -> str:
    """The help opens over the screen."""
    async with walk.opened("question_mark", HelpScreen, "help"):
        return "opened and closed"


async def explain(walk: Walk) -> str:
    """Pastes an error whose figures are known, and waits for its explanation."""
    async with walk.opened("e", ExplainScreen, "explain") as screen:
        walk.app.post_message(Paste(SAMPLE))
        await walk.wait(lambda: screen.found is not None, _LOADING_SECONDS)
        cause = None if screen.found is None else screen.found.cause
        await walk.save("explain")
        if cause is None or cause.error.id != "oom":
            raise FailedError("an out-of-memory error is not recognised")
        return f"{cause.error.id}, {len(screen.query_one('#meaning', LineTable).rows)} lines"


async def doctor(walk: Walk) -> str:
    """The checks appear; what they find is this machine's matter, not the screen's."""
    async with walk.opened("r", DoctorScreen, "doctor") as screen:
        await walk.wait(lambda: screen.is_over, _DOCTOR_SECONDS)
        await walk.save("doctor")
        shown = {row.key for row in screen.query_one("#checks", LineTable).rows}
        missing = [check.id for check in screen.checks if check.fix and f"{check.id}/0" not in shown]
        if missing or not shown:
            raise FailedError(f"{len(shown)} rows, and none for {', '.join(missing) or 'any check'}")
        return f"{len(screen.checks)} checks{'' if screen.is_over else ' up to now'}"


async def workloads(walk: Walk) -> str:
    """Opens the list and a form, and types a wrong value; it starts nothing."""
    async with walk.opened("w", WorkloadsScreen, "workloads") as screen:
        await walk.wait(lambda: walk.app.workshop.catalogue is not None, _LOADING_SECONDS)
        catalogue = walk.app.workshop.catalogue
        if catalogue is None or not catalogue.workloads:
            raise FailedError("no workload was found")
        await walk.save("workloads")
        screen.query_one("#workloads", LineTable).cursor = _first_with_numbers(catalogue)
        async with walk.opened("enter", WorkloadForm, "workload_form") as form:
            await _type_nonsense(walk, form)
        return f"{len(catalogue.workloads)} workloads, {len(catalogue.broken)} files that are none"


async def _type_nonsense(walk: Walk, form: WorkloadForm) -> None:
    field = next((each for each in form.query(ParameterField) if each.query(Input)), None)
    if field is None:
        return
    field.query_one(Input).focus()
    await walk.pilot.press("end", "x")
    await walk.save("workload_form")
    if not field.error or not form.query_one("#start", Button).disabled:
        raise FailedError(f"the form takes {field.text!r} for {field.parameter.name}")


def _first_with_numbers(catalogue: Catalogue) -> int:
    """Where in the list the first workload stands whose form has something to type; the first of all if none has."""
    numbers = {ParameterKind.INTEGER, ParameterKind.NUMBER}
    kinds = [{parameter.kind for parameter in each.parameters} for each in catalogue.workloads]
    return next((place for place, found in enumerate(kinds) if found & numbers), 0)


def _liveliest(walk: Walk) -> int:
    """Where in the list the GPU stands whose utilization has moved most: there is most to see."""
    spans = [_span(walk, each.key) for each in walk.frame.devices]
    return spans.index(max(spans))


def _span(walk: Walk, key: str) -> float:
    history = walk.app.store.history(key, "utilization_gpu_percent", HISTORY_BUCKETS)
    seen = [value for value in history if value is not None]
    return max(seen, default=0.0) - min(seen, default=0.0)
