"""The doctor screen: results as they arrive, in groups, with the fix below a problem; and its end."""

from collections.abc import Iterable

import pytest
from textual.pilot import Pilot

from gpumon.core.inbox import Inbox
from gpumon.health.checks import Check, Status
from gpumon.health.doctor.rules import in_order
from gpumon.operations.doctor.examination import DoctorOptions
from gpumon.present.doctor import doctor_rows, summary
from gpumon.present.paint.line import plain, width_of
from gpumon.ui.app import GpumonApp
from gpumon.ui.screens import doctor
from gpumon.ui.screens.doctor import DoctorScreen
from tests.frames import machine
from tests.ui.fakes import FakeLive, app_on, screen_text
from tests.ui.test_snapshots import Compare

CHECKS = (
    Check("driver.loaded", Status.OK, "driver 580.95.05"),
    Check("driver.nodes", Status.FAIL, "There is no /dev/nvidia-uvm.", "sudo nvidia-modprobe -u -c 0 creates it."),
    Check("gpu.ecc", Status.SKIP, "The driver does not report this."),
    Check("gpu.row_remap", Status.SKIP, "The driver does not report this."),
    Check("host.shm", Status.WARN, "64.0 MiB free of 64.0 MiB: workers end with a bus error.", "--shm-size=16g."),
    Check("python.found", Status.OK, "1: /opt/venv/bin/python (VIRTUAL_ENV)"),
    Check("python1.torch", Status.OK, "torch 2.13.0+cu130 on Python 3.12.3, imported in 2.9 s"),
)


class FakeExamination:
    """An examination whose results come from the test."""

    made: "list[FakeExamination]"

    def __init__(self, options: DoctorOptions | None = None) -> None:
        self.inbox: Inbox[Check] = Inbox()
        self.options = options
        self.result: list[Check] = []
        self.started = self.closed = 0
        self.is_over = False
        FakeExamination.made.append(self)

    @property
    def checks(self) -> list[Check]:
        return in_order(self.result)

    def start(self) -> None:
        self.started += 1

    def close(self) -> None:
        self.closed += 1

    def find(self, checks: Iterable[Check], *, is_over: bool = False) -> None:
        self.is_over = is_over
        for check in checks:
            self.result.append(check)
            self.inbox.put(check)
        self.inbox.ring()


@pytest.fixture
def examinations(monkeypatch: pytest.MonkeyPatch) -> list[FakeExamination]:
    """Every examination that a screen makes."""
    FakeExamination.made = []
    monkeypatch.setattr(doctor, "Examination", FakeExamination)
    return FakeExamination.made


def app() -> GpumonApp:
    stream = FakeLive()
    stream.put(machine(2))
    return app_on(stream)


async def opened(pilot: Pilot[None]) -> DoctorScreen:
    await pilot.pause()
    await pilot.press("8")
    await pilot.pause()
    screen = pilot.app.screen
    assert isinstance(screen, DoctorScreen)
    return screen


# Lines


def lines(width: int = 100, *, is_over: bool = True) -> list[str]:
    return [plain(row.line).rstrip() for row in doctor_rows(CHECKS, width, is_over=is_over)]


def test_groups_marks_and_fixes() -> None:
    shown = lines()
    assert [line for line in shown if not line.startswith("  ")] == [
        " Driver", " GPUs", " Host", " Python", " Python 1",
    ]  # fmt: skip
    assert "  ✓ ok    loaded           driver 580.95.05" in shown
    place = shown.index("  ✗ FAIL  nodes            There is no /dev/nvidia-uvm.")
    assert shown[place + 1].strip() == "→ sudo nvidia-modprobe -u -c 0 creates it."
    assert "  - skip  ecc, row remap: The driver does not report this." in shown


def test_what_is_waited_for_is_named_until_it_is_over() -> None:
    waiting = [line for line in lines(is_over=False) if "· wait" in line]
    assert any("nvml, cuda, versions" in line for line in waiting)
    assert not any("· wait" in line for line in lines())


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_lines_fit(width: int) -> None:
    rows = doctor_rows(CHECKS, width, is_over=False)
    assert max(width_of(plain(row.line)) for row in rows) <= max(width, 50)
    assert len({row.key for row in rows}) == len(rows)


def test_the_sum() -> None:
    assert summary(CHECKS) == "1 failed, 1 with warnings, 3 ok, 2 skipped"
    assert summary([]) == ""


# Screen


async def test_checks_appear_as_they_are_made(examinations: list[FakeExamination]) -> None:
    async with app().run_test(size=(120, 50)) as pilot:
        screen = await opened(pilot)
        (run,) = examinations
        assert (run.started, screen.is_over) == (1, False)
        assert "running" in screen_text(pilot.app)
        run.find(CHECKS[:2])
        await pilot.pause()
        text = screen_text(pilot.app)
        assert "There is no /dev/nvidia-uvm." in text
        assert "→ sudo nvidia-modprobe" in text
        assert "64.0 MiB" not in text
        run.find(CHECKS[2:], is_over=True)
        await pilot.pause()
        text = screen_text(pilot.app)
        assert "64.0 MiB free" in text
        assert "1 failed, 1 with warnings, 3 ok, 2 skipped" in text
        assert "running" not in text
        assert "· wait" not in text


@pytest.mark.sampled(1)
@pytest.mark.parametrize("size", [(80, 24), (120, 30), (160, 50)])
def test_pictures(examinations: list[FakeExamination], snap_compare: Compare, size: tuple[int, int]) -> None:
    async def show(pilot: Pilot[None]) -> None:
        await opened(pilot)
        examinations[0].find(CHECKS)
        await pilot.pause()

    assert snap_compare(app(), terminal_size=size, run_before=show)
