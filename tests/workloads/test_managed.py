"""Managed: errors of the driver become sentences, memory is freed, and the verdict."""

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.workloads.conftest import Judge, RunWorkload, load_workload, needs_torch, output_of

GIBIBYTE = 1 << 30


@pytest.fixture(scope="module")
def managed() -> ModuleType:
    """The workload's file, loaded without torch."""
    return load_workload("managed")


@pytest.fixture(scope="module")
def driver_module() -> ModuleType:
    """The module of driver calls."""
    return load_workload("_kit.driver")


class Library:
    """A CUDA driver library: every function succeeds, but for those with a code."""

    def __init__(self, **codes: int) -> None:
        self.codes = codes
        self.calls: list[str] = []
        self.attributes = {83: 1, 89: 1}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if not name.startswith("cu") or self.codes.get(name) == -1:
            raise AttributeError(name)

        def function(*arguments: Any) -> int:  # noqa: ANN401
            self.calls.append(name)
            if name in {"cuGetErrorName", "cuGetErrorString"}:
                text = b"CUDA_ERROR_OUT_OF_MEMORY" if name.endswith("Name") else b"out of memory"
                arguments[1]._obj.value = text
            if name == "cuMemAllocManaged":
                arguments[0]._obj.value = 4096
            if name == "cuDeviceGetAttribute":
                arguments[0]._obj.value = self.attributes.get(arguments[1].value, 0)
            return self.codes.get(name, 0)

        return function


def driver_of(module: ModuleType, library: Library) -> Any:  # noqa: ANN401
    class Stand(module.Driver):  # type: ignore[misc,name-defined]
        def _load(self) -> Library:
            return library

    stream = SimpleNamespace(cuda_stream=0)
    torch = SimpleNamespace(cuda=SimpleNamespace(current_stream=lambda _: stream))
    return Stand(SimpleNamespace(device=SimpleNamespace(index=0), torch=torch))


def test_an_error_of_the_driver_is_a_sentence(driver_module: ModuleType) -> None:
    driver = driver_of(driver_module, Library(cuMemAllocManaged=2))
    with pytest.raises(driver_module.DriverError) as error:
        driver.allocate_managed(GIBIBYTE)
    assert str(error.value) == "cuMemAllocManaged failed: CUDA_ERROR_OUT_OF_MEMORY, out of memory."


def test_the_functions_with_the_known_signature_are_called(driver_module: ModuleType) -> None:
    library = Library()
    driver = driver_of(driver_module, library)
    address = driver.allocate_managed(GIBIBYTE)
    driver.prefetch(address, GIBIBYTE)
    driver.advise(address, GIBIBYTE, driver_module.SET_READ_MOSTLY)
    driver.free(address)
    assert address == 4096
    assert library.calls[1:] == ["cuMemAllocManaged", "cuMemPrefetchAsync", "cuMemAdvise", "cuMemFree_v2"]


@pytest.mark.parametrize("fault", ["buffer", "body", "synchronize"])
def test_managed_memory_is_freed_whatever_happens(
    managed: ModuleType, driver_module: ModuleType, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError(fault)

    library = Library()
    monkeypatch.setattr(managed, "ManagedBuffer", fail if fault == "buffer" else lambda *_: None)
    context = SimpleNamespace(synchronize=fail if fault == "synchronize" else lambda: None)
    buffer = managed.managed_buffer(context, driver_of(driver_module, library), 100)
    with pytest.raises(RuntimeError, match=fault), buffer:
        fail() if fault == "body" else None
    assert library.calls.count("cuMemFree_v2") == 1


@pytest.mark.parametrize(
    ("missing", "words"), [(83, "do not support managed memory"), (89, "concurrent managed access")]
)
def test_why_a_device_cannot_is_a_sentence(
    managed: ModuleType, driver_module: ModuleType, missing: int, words: str
) -> None:
    library = Library()
    library.attributes[missing] = 0
    with pytest.raises(managed.UnsupportedError, match=words):
        managed._require_support(driver_of(driver_module, library))


@pytest.mark.parametrize(
    ("free", "size", "share", "count"), [(80 * GIBIBYTE, 512, 10, 512 << 18), (GIBIBYTE, 512, 10, 102 << 18)]
)
def test_never_more_than_the_share_of_what_is_free(
    managed: ModuleType, monkeypatch: pytest.MonkeyPatch, free: int, size: int, share: float, count: int
) -> None:
    monkeypatch.setattr(managed, "host_free_bytes", lambda: 64 * GIBIBYTE)
    parameters = SimpleNamespace(size_mebibytes=size, share_percent=share)
    context = SimpleNamespace(free_memory=lambda: (free, free), parameters=parameters)
    assert managed._count(context) == count
    with pytest.raises(managed.UnsupportedError, match="less than a mebibyte"):
        managed._count(SimpleNamespace(free_memory=lambda: (1 << 20, free), parameters=parameters))


def rates(touch: float = 10, prefetch: float = 40) -> dict[str, dict[str, float]]:
    speeds = {"explicit copy": 50.0, "first touch": touch, "prefetch": prefetch, "read mostly": prefetch}
    return {case: {"to_gpu": rate, "second_read": 2000, "to_host": rate / 2} for case, rate in speeds.items()}


@pytest.mark.parametrize(
    ("measured", "shares", "kind", "words"),
    [
        (rates(), False, "ok", "prefetched at 40.0 GB/s (4.0x), and an explicit copy from pinned memory at 50.0 GB/s"),
        (rates(prefetch=5), False, "warn", "copy explicitly"),
        (rates(prefetch=5), True, "ok", "shares the page tables"),
        ({"first touch": {}}, False, "warn", "Stopped"),
    ],
)
def test_the_verdict_names_the_way_to_use(
    managed: ModuleType, measured: dict[str, dict[str, float]], shares: bool, kind: str, words: str
) -> None:
    verdict = managed.verdict_of(Judge(), measured, shares_page_tables=shares)
    assert verdict[0] == kind
    assert words in verdict[1]


@needs_torch
def test_the_cpu_is_refused_in_a_sentence(run_workload: RunWorkload) -> None:
    ran = run_workload("managed")
    assert ran.exit_code == 3
    assert ran.of("error")[0]["text"] == "managed measures how memory moves between host and GPU, which needs a GPU."


MEASURE = """
import importlib
spec = importlib.util.spec_from_file_location("managed_probe", sys.argv[1] + "/managed.py")
m = sys.modules["managed_probe"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(m)
class Pair(m.PinnedPair):
    def __init__(self):
        self.host, self.gpu = (torch.zeros(1000, dtype=torch.int32) for _ in range(2))
    def prefetch(self, *, to_host=False):
        super().prefetch(to_host=to_host)
        FAULT
context.parameters = types.SimpleNamespace(repetitions=2)
context.stopping, context.results = False, []
context.metric = lambda *_: None
context.result = lambda *arguments, **options: context.results.append((arguments, options))
try:
    print(sorted(m._measure(context, "explicit copy", Pair())), context.checked, len(context.results))
except ArithmeticError as error:
    print(error)
"""


@pytest.mark.sampled(1)
@needs_torch
@pytest.mark.parametrize(
    ("fault", "output"),
    [
        ("pass", "['second_read', 'to_gpu', 'to_host'] 7 3"),
        ("self.gpu[5] += 1", "explicit copy: the sum of to_gpu is"),
        ("self.host[5] += 1 if to_host else 0", "explicit copy: the sum of to_host is"),
    ],
)
def test_wrong_contents_are_found(fault: str, output: str) -> None:
    assert output_of("launch", MEASURE.replace("FAULT", fault)).startswith(output)
