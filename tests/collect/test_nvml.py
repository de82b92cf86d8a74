"""The choke point: what can be called, what it costs, and what its errors mean."""

import re
import threading
from contextlib import suppress

import pynvml  # noqa: TID251
import pytest

from gpumon.collect.calls import CALLS, EVENT_CALLS
from gpumon.collect.nvml import DeviceLostError, DriverGoneError, Nvml, NvmlError, ReadingError, failure
from gpumon.core.collector_contract import BREADCRUMB_BYTES, CRUMB_BYTES
from gpumon.core.problems import Problem, ProblemCode
from tests.collect.fake import LOST, MISMATCH, NOT_SUPPORTED, UNINITIALIZED, FakeNvml, error

WRITES = re.compile(r"Set|Reset|Clear|Create|Destroy|Enable|Disable|Modify|Remove|Drain|Register|Validate|Freeze")
POWER = "nvmlDeviceGetPowerUsage"


def test_no_call_changes_anything() -> None:
    assert not [name for name in CALLS if WRITES.search(name) and name not in EVENT_CALLS]
    assert len(set(CALLS)) == len(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_every_call_is_nvidias(name: str) -> None:
    assert callable(getattr(pynvml, name))
    assert len(name) < BREADCRUMB_BYTES


@pytest.mark.parametrize("name", ["nvmlDeviceSetPowerManagementLimit", "nvmlDeviceGetSamples", "NVMLError"])
def test_nothing_outside_the_list_can_be_called(name: str) -> None:
    with pytest.raises(KeyError):
        Nvml().call(name, 0)


def test_calls_are_counted() -> None:
    fake = FakeNvml()
    api = Nvml(library=fake)
    assert api.call(POWER, 0) == 612_500
    fake.answer(POWER, NOT_SUPPORTED)
    with pytest.raises(NvmlError):
        api.call(POWER, 0)
    assert (api.calls, api.errors) == (2, 1)


def test_dropped_calls_are_not_made() -> None:
    fake = FakeNvml()
    api = Nvml(dropped=[POWER], library=fake)
    with pytest.raises(NvmlError) as caught:
        api.call(POWER, 0)
    assert caught.value.problem.code is ProblemCode.DROPPED
    assert fake.calls == []
    assert (api.calls, api.errors) == (0, 0)


@pytest.mark.parametrize("answer", [1, NOT_SUPPORTED])
def test_breadcrumb_names_the_running_call_and_only_that(answer: object) -> None:
    breadcrumb = bytearray(BREADCRUMB_BYTES)
    fake = FakeNvml()
    seen: list[bytes] = []

    def spy(handle: int) -> object:
        seen.append(bytes(breadcrumb).rstrip(b"\0"))
        if isinstance(answer, Exception):
            raise answer
        return answer

    fake.answer("nvmlDeviceGetMaxPcieLinkGeneration", spy)
    fake.answer("nvmlDeviceGetName", spy)
    api = Nvml(breadcrumb, library=fake)
    for name in ("nvmlDeviceGetMaxPcieLinkGeneration", "nvmlDeviceGetName"):
        with suppress(NvmlError):
            api.call(name, 0)
        assert breadcrumb[0] == 0
    assert seen == [b"nvmlDeviceGetMaxPcieLinkGeneration", b"nvmlDeviceGetName"]


@pytest.mark.parametrize(
    ("raised", "kind", "code"),
    [
        (LOST, DeviceLostError, ProblemCode.GPU_LOST),
        (error(pynvml.NVML_ERROR_RESET_REQUIRED), DeviceLostError, ProblemCode.GPU_LOST),
        (UNINITIALIZED, DriverGoneError, ProblemCode.DRIVER_RESTARTED),
        (error(pynvml.NVML_ERROR_DRIVER_NOT_LOADED), DriverGoneError, ProblemCode.DRIVER_NOT_LOADED),
        (NOT_SUPPORTED, ReadingError, ProblemCode.NOT_SUPPORTED),
        (error(pynvml.NVML_ERROR_NO_PERMISSION), ReadingError, ProblemCode.NO_PERMISSION),
        (error(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND), ReadingError, ProblemCode.LIBRARY_NOT_FOUND),
        (error(pynvml.NVML_ERROR_UNKNOWN), ReadingError, ProblemCode.UNKNOWN),
        (error(12345), ReadingError, ProblemCode.UNKNOWN),
        (MISMATCH, ReadingError, ProblemCode.DRIVER_TOO_OLD),
    ],
)
def test_errors_are_named(raised: Exception, kind: type[NvmlError], code: ProblemCode) -> None:
    fake = FakeNvml()
    fake.answer("nvmlDeviceGetName", raised)
    with pytest.raises(NvmlError) as caught:
        Nvml(library=fake).call("nvmlDeviceGetName", 0)
    assert type(caught.value) is kind
    assert caught.value.problem.code is code
    assert caught.value.problem.reason.endswith(".")


def test_each_call_has_its_own_costs() -> None:
    fake = FakeNvml()
    api = Nvml(library=fake)
    for _ in range(3):
        api.call(POWER, 0)
    fake.answer("nvmlDeviceGetName", NOT_SUPPORTED)
    with pytest.raises(NvmlError):
        api.call("nvmlDeviceGetName", 0)
    power, name = sorted(api.costs(), key=lambda cost: cost.call, reverse=True)
    assert (power.call, power.count, power.errors) == (POWER, 3, 0)
    assert (name.call, name.count, name.errors) == ("nvmlDeviceGetName", 1, 1)
    assert 0 <= power.longest_seconds <= power.seconds


def test_a_silenced_handle_is_called_no_more_and_others_are() -> None:
    fake, problem = FakeNvml(2), Problem(ProblemCode.GPU_LOST, "It is gone.")
    api = Nvml(library=fake)
    api.block(1, problem)
    for name in (POWER, "nvmlDeviceGetName"):
        with pytest.raises(DeviceLostError) as caught:
            api.call(name, 1)
        assert caught.value.problem is problem
    assert fake.calls == []
    assert api.call(POWER, 0) == 612_500


def test_a_call_for_events_has_a_place_of_its_own_in_the_breadcrumb() -> None:
    breadcrumb = bytearray(BREADCRUMB_BYTES)
    fake = FakeNvml()
    seen: list[bytes] = []
    fake.answer("nvmlEventSetCreate", lambda: seen.append(bytes(breadcrumb)))
    breadcrumb[:4] = b"next"  # a call of the sweep, under way at the same time
    Nvml(breadcrumb, library=fake).call("nvmlEventSetCreate")
    assert seen[0].startswith(b"next")
    assert seen[0][CRUMB_BYTES:].rstrip(b"\0") == b"nvmlEventSetCreate"
    assert breadcrumb.startswith(b"next")
    assert breadcrumb[CRUMB_BYTES] == 0


def test_a_function_that_pynvml_lacks_is_one_that_the_driver_lacks() -> None:
    fake = FakeNvml()
    del fake.nvmlDeviceGetTemperatureV  # type: ignore[attr-defined]
    with pytest.raises(NvmlError) as caught:
        Nvml(library=fake).call("nvmlDeviceGetTemperatureV", 0, 0)
    assert caught.value.problem.code is ProblemCode.DRIVER_TOO_OLD


def test_other_exceptions_are_not_swallowed() -> None:
    fake = FakeNvml()
    fake.answer(POWER, ZeroDivisionError())
    api = Nvml(library=fake)
    with pytest.raises(ZeroDivisionError):
        api.call(POWER, 0)
    assert api.in_flight.of_thread(threading.get_ident()) is None
    assert api.calls == 1


def test_a_code_that_pynvml_does_not_know_is_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(pynvml, "nvmlErrorString", asked.append)  # a call into the library, past the choke point
    assert failure(4711).problem.reason == "NVML returned: error 4711."
    assert failure(pynvml.NVML_ERROR_IRQ_ISSUE).problem.reason == "NVML returned: irq issue."
    assert not asked


def test_every_named_problem_has_a_cause_in_one_sentence() -> None:
    for code in range(1, 40):
        assert failure(code).problem.reason.count(". ") == 0
