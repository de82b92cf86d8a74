"""The headless test mode: a pilot walks the real app over every screen and key, and checks what it finds.

It works on this machine's live data or on a recording, and presses only keys that have no effect outside gpumon.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from textual.events import Paste
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Button, Input

from gpumon.core.metrics import METRICS
from gpumon.core.model import DeviceState, Frame
from gpumon.core.store import HISTORY_BUCKETS
from gpumon.diagnosis.checks import Check, FailedError, SkippedError, Status, document
from gpumon.diagnosis.health import RULES
from gpumon.jobs.catalogue import Catalogue
from gpumon.jobs.parameters import ParameterKind
from gpumon.streams.base import Adjustable, Seekable, Stream
from gpumon.ui.app import GpumonApp
from gpumon.ui.screens.cost import CostScreen
from gpumon.ui.screens.details import DetailsScreen
from gpumon.ui.screens.device import DeviceScreen
from gpumon.ui.screens.doctor import DoctorScreen
from gpumon.ui.screens.explain import ExplainScreen
from gpumon.ui.screens.health import HealthScreen
from gpumon.ui.screens.help import HelpScreen
from gpumon.ui.screens.metric_choice import MetricChoiceScreen
from gpumon.ui.screens.overview import OverviewScreen
from gpumon.ui.screens.workload_form import WorkloadForm
from gpumon.ui.screens.workloads import WorkloadsScreen
from gpumon.ui.view.explain import SAMPLE
from gpumon.ui.widgets.line_table import LineTable
from gpumon.ui.widgets.parameter_field import ParameterField

__all__ = ["Check", "Status", "document", "selftest"]

DEADLINE_SECONDS: Final = 40.0
SIZES: Final = ((80, 24), (300, 100), (60, 10), (20, 5))
_FIRST_FRAMES_SECONDS: Final = 15.0
_TWO_READINGS: Final = 2
_LOADING_SECONDS: Final = 12.0
_DOCTOR_SECONDS: Final = 8.0

ScreenT = TypeVar("ScreenT", bound=Screen[Any])


async def selftest(stream: Stream, size: tuple[int, int], theme: str, screens: Path | None) -> list[Check]:
    """Walks the app and returns the checks; ends within `DEADLINE_SECONDS` whatever hangs.

    Args:
        stream: Where frames come from; started by the caller.
        size: Columns and rows.
        theme: The app's theme.
        screens: Folder in which a picture of each screen is saved, or None.
    """
    walk = _Walk(GpumonApp(stream, theme=theme), stream, size, screens)
    try:
        await asyncio.wait_for(walk.run(), DEADLINE_SECONDS)
    except asyncio.TimeoutError:
        walk.checks.append(Check("deadline", Status.FAIL, f"not done after {DEADLINE_SECONDS:.0f} s"))
    return walk.checks


def _first_with_numbers(catalogue: Catalogue) -> int:
    """Where in the list the first workload stands whose form has something to type; the first of all if none has."""
    numbers = {ParameterKind.INTEGER, ParameterKind.NUMBER}
    kinds = [{parameter.kind for parameter in each.parameters} for each in catalogue.workloads]
    return next((place for place, found in enumerate(kinds) if found & numbers), 0)


class _Walk:
    """The way over all screens."""

    def __init__(self, app: GpumonApp, stream: Stream, size: tuple[int, int], screens: Path | None) -> None:
        self.checks: list[Check] = []
        self._app = app
        self._stream = stream
        self._size = size
        self._screens = screens

    async def run(self) -> None:
        """Makes every check in turn; one that fails does not end the walk, but without frames there is none."""
        async with self._app.run_test(size=self._size) as pilot:
            await self._check("frames", self._frames, pilot)
            if self.checks[-1].status is not Status.OK:
                return
            for name, check in (
                ("values", self._values),
                ("overview", self._overview),
                ("device", self._device),
                ("process", self._process),
                ("cost", self._cost),
                ("health", self._health),
                ("help", self._help),
                ("explain", self._explain),
                ("doctor", self._doctor),
                ("workloads", self._workloads),
                ("pause", self._pause),
                ("pace", self._pace),
                ("seek", self._seek),
                ("themes", self._themes),
                ("sizes", self._sizes),
            ):
                await self._check(name, check, pilot)

    async def _check(self, name: str, check: Callable[[Pilot[None]], Awaitable[str]], pilot: Pilot[None]) -> None:
        try:
            self.checks.append(Check(name, Status.OK, await check(pilot)))
        except FailedError as error:
            self.checks.append(Check(name, Status.FAIL, str(error)))
        except SkippedError as error:
            self.checks.append(Check(name, Status.SKIP, str(error)))

    @property
    def _frame(self) -> Frame:
        assert self._app.store.frame is not None
        return self._app.store.frame

    async def _frames(self, pilot: Pilot[None]) -> str:
        seen: set[float] = set()
        until = time.monotonic() + _FIRST_FRAMES_SECONDS
        while len(seen) < _TWO_READINGS and time.monotonic() < until:
            await pilot.pause(0.1)
            if self._app.store.frame is not None:
                seen.add(self._app.store.frame.monotonic_seconds)
        if not seen:
            raise FailedError(str(self._stream.problem or "no frame came"))
        problem = self._frame.problems.get("driver")
        if problem is not None:
            raise FailedError(str(problem))
        return f"{len(self._frame.gpus)} GPUs, driver {self._frame.driver_version}"

    async def _values(self, _: Pilot[None]) -> str:
        """Every value is there or has a reason why not, and at least one of each GPU is there."""
        answering = [device for device in self._frame.devices if device.state is DeviceState.OK]
        for device in answering:
            unexplained = [name for name in METRICS if name not in device.readings and name not in device.problems]
            if unexplained:
                raise FailedError(f"GPU {device.label} lacks {', '.join(unexplained)} without a reason")
            if not device.readings:
                raise FailedError(f"GPU {device.label} answers, but has no values")
        count = sum(len(device.readings) for device in answering)
        return f"{count} of {len(METRICS) * len(answering)} values, every other with its reason"

    async def _overview(self, pilot: Pilot[None]) -> str:
        await self._save(pilot, "overview")
        table = self._expect(OverviewScreen).query_one("#devices", LineTable)
        if len(table.rows) != len(self._frame.devices):
            raise FailedError(f"{len(table.rows)} rows for {len(self._frame.devices)} GPUs")
        return f"{len(table.rows)} rows"

    async def _device(self, pilot: Pilot[None]) -> str:
        """Every chart has points, keys for time and metrics work, and every figure has its row."""
        self._expect(OverviewScreen).query_one("#devices", LineTable).cursor = self._liveliest()
        async with self._opened(pilot, "enter", DeviceScreen, "device-chart") as screen:
            await pilot.press("x", "left", "n", "z")
            async with self._opened(pilot, "m", MetricChoiceScreen, "metrics"):
                pass
            rows = screen.query_one("#details", LineTable).rows
            if len(rows) < len(METRICS):
                raise FailedError(f"{len(rows)} rows for {len(METRICS)} metrics")
            device = next(each for each in self._frame.devices if each.key == screen.key)
            drawn = [each for each in screen.charts if each.rows and device.get(each.metric) is not None]
            empty = [each.metric for each in drawn if not any(each.columns)]
            if empty:
                raise FailedError(f"the chart of {', '.join(empty)} has no points")
            return f"{len(drawn)} charts with points, {len(rows)} rows"

    def _liveliest(self) -> int:
        """Where in the list the GPU stands whose utilization has moved most: there is most to see."""
        return max(range(len(self._frame.devices)), key=lambda place: self._span(self._frame.devices[place].key))

    def _span(self, key: str) -> float:
        history = self._app.store.history(key, "utilization_gpu_percent", HISTORY_BUCKETS)
        seen = [value for value in history if value is not None]
        return max(seen, default=0.0) - min(seen, default=0.0)

    async def _cost(self, pilot: Pilot[None]) -> str:
        async with self._opened(pilot, "c", CostScreen, "cost") as screen:
            return f"{len(screen.query_one('#details', LineTable).rows)} rows"

    async def _process(self, pilot: Pilot[None]) -> str:
        processes = self._expect(OverviewScreen).query_one("#processes", LineTable)
        if not processes.rows:
            raise SkippedError("no process is on a GPU")
        processes.focus()
        try:
            async with self._opened(pilot, "enter", DetailsScreen, "process") as screen:
                return f"{len(screen.query_one('#details', LineTable).rows)} rows"
        finally:
            self._expect(OverviewScreen).query_one("#devices", LineTable).focus()

    async def _health(self, pilot: Pilot[None]) -> str:
        """Every alert has its row, and the rules that cannot tell say so."""
        async with self._opened(pilot, "a", HealthScreen, "health") as screen:
            self._app.draw_anew()
            standing = self._app.feed.scene()
            rows = screen.query_one("#alerts", LineTable).rows
            if standing is None or len(rows) != len(standing.alerts) + len(standing.alerts_over):
                raise FailedError(f"{len(rows)} rows for the alerts that stand and that are over")
            return f"{len(standing.alerts)} alerts, {len(standing.alerts_over)} over, {len(RULES)} rules"

    async def _help(self, pilot: Pilot[None]) -> str:
        async with self._opened(pilot, "question_mark", HelpScreen, "help"):
            return "opened and closed"

    async def _explain(self, pilot: Pilot[None]) -> str:
        """Pastes an error whose figures are known, and waits for its explanation."""
        async with self._opened(pilot, "e", ExplainScreen, "explain") as screen:
            self._app.post_message(Paste(SAMPLE))
            until = time.monotonic() + _LOADING_SECONDS
            while screen.found is None and time.monotonic() < until:
                await pilot.pause(0.1)
            cause = None if screen.found is None else screen.found.cause
            await self._save(pilot, "explain")
            if cause is None or cause.error.id != "oom":
                raise FailedError("an out-of-memory error is not recognised")
            return f"{cause.error.id}, {len(screen.query_one('#meaning', LineTable).rows)} lines"

    async def _doctor(self, pilot: Pilot[None]) -> str:
        """The checks appear; what they find is this machine's matter, not the screen's."""
        async with self._opened(pilot, "r", DoctorScreen, "doctor") as screen:
            until = time.monotonic() + _DOCTOR_SECONDS
            while not screen.is_over and time.monotonic() < until:
                await pilot.pause(0.1)
            await self._save(pilot, "doctor")
            shown = {row.key for row in screen.query_one("#checks", LineTable).rows}
            missing = [check.id for check in screen.checks if check.fix and f"{check.id}/0" not in shown]
            if missing or not shown:
                raise FailedError(f"{len(shown)} rows, and none for {', '.join(missing) or 'any check'}")
            return f"{len(screen.checks)} checks{'' if screen.is_over else ' up to now'}"

    async def _workloads(self, pilot: Pilot[None]) -> str:
        """Opens the list and a form, and types a wrong value; it starts nothing."""
        async with self._opened(pilot, "w", WorkloadsScreen, "workloads") as screen:
            until = time.monotonic() + _LOADING_SECONDS
            while self._app.workshop.catalogue is None and time.monotonic() < until:
                await pilot.pause(0.1)
            catalogue = self._app.workshop.catalogue
            if catalogue is None or not catalogue.workloads:
                raise FailedError("no workload was found")
            await self._save(pilot, "workloads")
            screen.query_one("#workloads", LineTable).cursor = _first_with_numbers(catalogue)
            async with self._opened(pilot, "enter", WorkloadForm, "workload_form") as form:
                await self._type_nonsense(pilot, form)
            return f"{len(catalogue.workloads)} workloads, {len(catalogue.broken)} files that are none"

    async def _type_nonsense(self, pilot: Pilot[None], form: WorkloadForm) -> None:
        field = next((each for each in form.query(ParameterField) if each.query(Input)), None)
        if field is None:
            return
        field.query_one(Input).focus()
        await pilot.press("end", "x")
        await self._save(pilot, "workload_form")
        if not field.error or not form.query_one("#start", Button).disabled:
            raise FailedError(f"the form takes {field.text!r} for {field.parameter.name}")

    async def _pause(self, pilot: Pilot[None]) -> str:
        await pilot.press("space")
        paused = self._app.feed.paused
        await pilot.press("space")
        if not paused or self._app.feed.paused:
            raise FailedError("space does not stop and go on")
        return "stopped and went on"

    async def _pace(self, pilot: Pilot[None]) -> str:
        before = self._pace_now()
        await pilot.press("plus")
        faster = self._pace_now()
        await pilot.press("minus")
        if faster == before or self._pace_now() != before:
            raise FailedError(f"+ and - went from {before:g} over {faster:g} to {self._pace_now():g}")
        return f"{before:g} to {faster:g} and back"

    async def _seek(self, pilot: Pilot[None]) -> str:
        if not isinstance(self._stream, Seekable):
            raise SkippedError("live frames cannot be sought in")
        await pilot.press("full_stop", "comma")
        await pilot.pause(0.2)
        return f"at {self._stream.position.seconds:.0f} s"

    async def _themes(self, pilot: Pilot[None]) -> str:
        seen = [self._app.theme]
        for _ in range(3):
            await pilot.press("t")
            seen.append(self._app.theme)
        if len(set(seen)) != 3 or seen[0] != seen[-1]:
            raise FailedError(f"t went over {', '.join(seen)}")
        return ", ".join(seen[:-1])

    async def _sizes(self, pilot: Pilot[None]) -> str:
        for columns, rows in (*SIZES, self._size):
            await pilot.resize_terminal(columns, rows)
            await pilot.pause(0.05)
        self._expect(OverviewScreen)
        return ", ".join(f"{columns}x{rows}" for columns, rows in SIZES)

    @asynccontextmanager
    async def _opened(self, pilot: Pilot[None], key: str, kind: type[ScreenT], name: str) -> AsyncIterator[ScreenT]:
        """Opens a screen by its key, saves its picture, and closes it again."""
        await pilot.press(key)
        await self._save(pilot, name)
        screen = self._expect(kind)
        try:
            yield screen
        finally:
            await pilot.press("escape")
            await pilot.pause(0.05)

    def _expect(self, kind: type[ScreenT]) -> ScreenT:
        screen = self._app.screen
        if not isinstance(screen, kind):
            raise FailedError(f"{type(screen).__name__} is on top instead of {kind.__name__}")
        return screen

    def _pace_now(self) -> float:
        if isinstance(self._stream, Seekable):
            return self._stream.position.speed
        return self._stream.interval if isinstance(self._stream, Adjustable) else 0.0

    async def _save(self, pilot: Pilot[None], name: str) -> None:
        await pilot.pause(0.2)
        if self._screens is not None:
            (self._screens / f"{name}.svg").write_text(self._app.export_screenshot(), encoding="utf-8")
