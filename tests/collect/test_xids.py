"""The watch for Xids on a scripted driver: what it registers, what it makes of events, and how it ends."""

import threading
from collections import deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gpumon.collect import xids
from gpumon.collect.nvml import DeviceLostError, Nvml
from gpumon.collect.xids import FATAL, Xid, XidWatcher
from gpumon.core.problems import ProblemCode
from tests.collect.fake import LOST, NO_PERMISSION, NOT_SUPPORTED, TOO_OLD, UNINITIALIZED, UNKNOWN
from tests.collect.xid_driver import XidDriver
from tests.processes import eventually

POWER = "nvmlDeviceGetPowerUsage"


class Watch:
    """A watch on a scripted driver of two devices."""

    def __init__(self) -> None:
        self.driver = XidDriver()
        self.api = Nvml(library=self.driver)
        self.came: deque[Xid] = deque()
        self.watch = XidWatcher(self.api, self.came)

    def begin(self, *devices: int) -> None:
        """Watches the devices, and waits until they are registered or were refused."""
        for device in devices:
            self.watch.watch(device, device)
        waited = self.driver.calls.count
        assert eventually(lambda: waited("nvmlEventSetWait_v2") > 1)

    def threads(self) -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "gpumon-xids"]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    monkeypatch.setattr(xids, "PAUSE_SECONDS", 0.02)
    made = Watch()
    yield made
    made.watch.stop()


def test_each_event_comes_once_with_its_device(bench: Watch) -> None:
    bench.begin(0, 1)
    assert bench.driver.registered == {1: [0, 1]}
    bench.driver.come(1, 31)
    bench.driver.come(0, 43)
    assert eventually(lambda: len(bench.came) == 2)
    assert [(xid.device_index, xid.number) for xid in bench.came] == [(1, 31), (0, 43)]
    assert bench.watch.fatal == {}


def test_what_is_no_xid_or_of_no_device_is_left_out(bench: Watch) -> None:
    bench.begin(1)
    bench.driver.come(1, 5, kind=1)
    bench.driver.come(7, 79)
    bench.driver.come(1, 31)
    assert eventually(lambda: bool(bench.came))
    assert [xid.number for xid in bench.came] == [31]


@pytest.mark.parametrize("xid", FATAL)
def test_a_gpu_that_does_not_survive_is_asked_nothing_more(bench: Watch, xid: int) -> None:
    bench.begin(0, 1)
    bench.driver.come(1, xid)
    assert eventually(lambda: 1 in bench.watch.fatal)
    assert bench.watch.fatal == {1: FATAL[xid]}
    bench.driver.count()
    assert eventually(lambda: _refuses(bench.api, 1))
    bench.driver.count()
    for _ in range(3):
        assert _refuses(bench.api, 1)
    assert POWER not in bench.driver.count()
    assert bench.api.call(POWER, 0) == 612_500
    bench.watch.watch(1, 1)
    first, *later = bench.driver.registered.values()
    assert first == [0, 1]
    assert not any(1 in devices for devices in later), "a wait that the block ended is followed by a new event set"


def test_a_wait_in_which_nothing_comes_is_no_error_and_no_cost(bench: Watch) -> None:
    bench.begin(0)
    assert bench.api.errors == 0
    names = {cost.call for cost in bench.api.costs()}
    assert "nvmlDeviceRegisterEvents" in names
    assert "nvmlEventSetWait_v2" not in names


@pytest.mark.parametrize("failed", [UNKNOWN, LOST])
def test_a_wait_that_fails_is_tried_again_with_a_new_set(bench: Watch, failed: Exception) -> None:
    bench.begin(0, 1)
    bench.driver.fail(failed)
    assert eventually(lambda: bench.driver.registered.get(2) == [0, 1])
    assert bench.driver.freed == [1]
    bench.driver.come(0, 13)
    assert eventually(lambda: bool(bench.came))


@pytest.mark.parametrize("refused", [NOT_SUPPORTED, NO_PERMISSION, UNKNOWN, LOST])
def test_a_device_without_events_does_not_cost_those_of_the_others(bench: Watch, refused: Exception) -> None:
    bench.driver.answer("nvmlDeviceGetSupportedEventTypes", refused, device=0)
    bench.begin(0, 1)
    assert bench.driver.registered == {1: [1]}
    assert bench.driver.calls.count("nvmlDeviceGetSupportedEventTypes") == 2, "not at every wait"


@pytest.mark.parametrize("hopeless", [NOT_SUPPORTED, TOO_OLD, UNINITIALIZED])
@pytest.mark.parametrize("call", ["nvmlEventSetCreate", "nvmlEventSetWait_v2"])
def test_the_thread_ends_where_there_are_no_events(bench: Watch, call: str, hopeless: Exception) -> None:
    bench.driver.answer(call, hopeless)
    bench.watch.watch(0, 0)
    assert eventually(lambda: call in bench.driver.calls and not bench.threads())
    assert bench.driver.calls.count(call) == 1


def test_the_end_gives_the_set_back_before_it_returns(bench: Watch) -> None:
    bench.begin(0)
    bench.watch.stop()
    assert bench.driver.freed == [1]
    assert eventually(lambda: not bench.threads())


def test_a_wait_that_does_not_return_is_left_behind_and_its_set_with_it(
    bench: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xids, "STOP_TIMEOUT_SECONDS", 0.05)
    entered, gate = threading.Event(), threading.Event()

    def hang(event_set: int, milliseconds: int) -> Any:  # noqa: ANN401
        entered.set()
        gate.wait(15)
        return SimpleNamespace(device=0, eventType=8, eventData=13)

    bench.driver.answer("nvmlEventSetWait_v2", hang)
    bench.watch.watch(0, 0)
    assert entered.wait(15)
    bench.watch.stop()
    gate.set()
    assert eventually(lambda: not bench.threads())
    assert bench.driver.freed == [], "its session took it along"


def test_what_is_said_of_a_dead_gpu_has_a_remedy() -> None:
    for number, problem in FATAL.items():
        assert f"Xid {number}" in problem.reason
        assert problem.remedy
        assert problem.code in {ProblemCode.GPU_LOST, ProblemCode.UNRESPONSIVE}


def _refuses(api: Nvml, handle: int) -> bool:
    try:
        api.call(POWER, handle)
    except DeviceLostError:
        return True
    return False
