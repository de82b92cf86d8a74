"""Fixtures that several folders of tests share."""

import compileall
import fcntl
import gc
import inspect
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from _pytest.assertion import rewrite
from hypothesis import HealthCheck, settings
from hypothesis.internal import charmap
from hypothesis.internal.conjecture import providers

from tests.nvml_mock import NvmlMock, build, compiler

_GPU_TESTS = Path(__file__).with_name("gpu")
_MAX_ID_LENGTH = 80
_CASES: dict[object, list[dict[str, object]]] = {}
"""The cases of each test that has one item for all of them."""

for size in ("COLUMNS", "LINES"):  # pytest-xdist and some shells set them, and then they count for more than a terminal
    os.environ.pop(size, None)
os.environ["TZ"] = "UTC"  # the top line shows the time of day
time.tzset()
os.environ["XDG_CONFIG_HOME"] = os.devnull  # what the user has configured is of no concern here
os.environ["XDG_STATE_HOME"] = os.devnull  # nor what the user chose, and no test changes it

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and so would children

sys.dont_write_bytecode = False  # hundreds of processes would compile gpumon again, and every worker all tests
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

_SLOW_HOST = [HealthCheck.too_slow]  # of an input: a busy host is no fault of a strategy
settings.register_profile(
    "repeatable", derandomize=True, max_examples=25, deadline=None, suppress_health_check=_SLOW_HOST
)
settings.register_profile("searching", deadline=None, suppress_health_check=_SLOW_HOST)
settings.load_profile(os.environ.get("GPUMON_HYPOTHESIS", "repeatable"))
if "GPUMON_HYPOTHESIS" not in os.environ:  # each worker would parse all modules for constants that may be worth trying
    vars(providers)["is_local_module_file"] = lambda path: False

gc.set_threshold(10_000, 20, 20)  # thousands of tests stay in memory, and every complete collection visits them


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not read the tests that need a GPU when they are deselected."""
    return True if collection_path == _GPU_TESTS and "not gpu" in config.option.markexpr else None


def pytest_configure(config: pytest.Config) -> None:
    """Make what a test leaves open an error, and compile all modules once.

    In a new clone each worker would compile them, and that takes longer than to collect the tests.
    """
    config.addinivalue_line("filterwarnings", "ignore:.*use of fork:DeprecationWarning")  # see tests.forked_collector
    if "not gpu" in config.option.markexpr:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # children would hide the GPUs of the stand-in, and report it
    if "not long" in config.option.markexpr:  # those on GPUs kill loads, and leave pipes to them open
        for name in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning"):
            config.addinivalue_line("filterwarnings", f"error::{name}")
    if getattr(config.option, "numprocesses", None):
        folders = [config.rootpath / name for name in ("gpumon", "tests", "workloads")]
        paths = [path for folder in folders for path in folder.rglob("*.py")]
        if "not gpu" in config.option.markexpr:
            paths = [path for path in paths if path.parent != _GPU_TESTS]
        count, fork = os.cpu_count() or 1, multiprocessing.get_context("fork")
        children = [fork.Process(target=_compile, args=(config, paths[part::count])) for part in range(count)]
        children.append(fork.Process(target=_tabulate))
        for child in children:
            child.start()
        for child in children:
            child.join()


def _tabulate() -> None:
    """Let hypothesis write its table of characters, which each worker would."""
    warnings.simplefilter("ignore")  # it is early
    charmap.intervals_from_codec("utf-8")


def _compile(config: pytest.Config, paths: list[Path]) -> None:
    """Write the bytecode of modules; that of tests has assertions that show their values."""
    for path in paths:
        cached = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
        if not path.name.startswith(("test_", "conftest")):
            compileall.compile_file(path, quiet=2)
        elif rewrite._read_pyc(path, cached) is None:
            cached.parent.mkdir(exist_ok=True)
            with suppress(SyntaxError):  # the collection reports it
                source, code = rewrite._rewrite_test(path, config)
                rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source, cached)


def pytest_collection_finish() -> None:
    """Exclude from garbage collection what stays until the end: modules, and the tests themselves."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Find what was left open, and leave the rest to the end of the process: pytest would visit it five times."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Do not create the cases of a matrix that are deselected, nor an item for each case where one for all will do."""
    sampled = metafunc.definition.get_closest_marker("sampled")
    marks = list(metafunc.definition.iter_markers("parametrize"))
    if not marks or (sampled and (len(marks) > 1 or "not long" not in metafunc.config.option.markexpr)):
        return
    count = sampled.args[0] if sampled else None
    parametrize, merges = metafunc.parametrize, _runs_its_cases_at_once(metafunc)
    cases: list[dict[str, object]] = [{}]

    def of_the_first(names: str, values: Iterable[object], ids: Any = None, **options: Any) -> None:  # noqa: ANN401
        if "_param_mark" in options:
            values, ids = list(values)[:count], ids if ids is None or callable(ids) else list(ids)[:count]
            if merges:
                split = _names(names)
                more = [dict(zip(split, _values_of(value, split), strict=True)) for value in values]
                cases[:] = [case | other for case in cases for other in more]
                values, ids = values[:1], [f"{len(cases)} cases"]
        parametrize(names, values, ids=ids, **options)

    if merges:
        _CASES[metafunc.function] = cases
    if merges or count is not None:
        metafunc.parametrize = of_the_first  # type: ignore[method-assign, assignment]


def _runs_its_cases_at_once(metafunc: pytest.Metafunc) -> bool:
    """Whether the cases of a test are one item: an item costs each worker more than what most cases test.

    They need no fixture of a test, such as a folder, and no command line names one of them.
    """
    config, marks = metafunc.config, list(metafunc.definition.iter_markers("parametrize"))
    names = {name for mark in marks for name in _names(mark.args[0])}
    shared = [metafunc._arg2fixturedefs.get(name) for name in {*metafunc.fixturenames} - names - {"request"}]
    return (
        hasattr(config, "workerinput")
        and not (config.option.keyword or any("::" in arg for arg in config.args))
        and not inspect.iscoroutinefunction(metafunc.function)
        and "request" not in metafunc.definition._fixtureinfo.argnames
        and all(definitions and definitions[-1].scope != "function" for definitions in shared)
        and not any("indirect" in mark.kwargs or isinstance(mark.args[1], Iterator) for mark in marks)
        and not any(getattr(values, "marks", ()) for mark in marks for values in mark.args[1])
    )


def _names(argument: str | Sequence[str]) -> list[str]:
    """The names of a mark for cases."""
    return [name.strip() for name in argument.split(",")] if isinstance(argument, str) else list(argument)


def _values_of(value: Any, names: list[str]) -> Sequence[object]:  # noqa: ANN401
    """The values of a case, one for each name."""
    if hasattr(value, "marks"):
        return tuple(value.values)
    return [value] if len(names) == 1 else tuple(value)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run the cases of a test that has one item for all; the report of a failure names the case."""
    skipped = None
    for case in _CASES.get(pyfuncitem.function, ()):
        arguments = {name: case.get(name, pyfuncitem.funcargs.get(name)) for name in pyfuncitem._fixtureinfo.argnames}
        try:
            pyfuncitem.obj(**arguments)
        except pytest.skip.Exception as skip:
            skipped = skip
        except BaseException:
            pyfuncitem.add_report_section("call", "case", "\n".join(f"{name} = {case[name]!r}" for name in case))
            raise
    if skipped is not None:
        raise skipped
    return True if pyfuncitem.function in _CASES else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the rest of a matrix to ``-m long``: of a test marked ``sampled(n)``, the first n cases run by default."""
    seen: Counter[str] = Counter()
    for item in items:
        sampled = item.get_closest_marker("sampled")
        if isinstance(item, pytest.Function) and item.function in _CASES:
            item.add_marker(pytest.mark.timeout(600))
        if item.path.parent.name == "errors":  # one worker reads and compiles the catalogue
            item.add_marker(pytest.mark.xdist_group("errors"))
        if sampled is not None:
            name = item.nodeid.partition("[")[0]
            seen[name] += 1
            if seen[name] > sampled.args[0]:
                item.add_marker(pytest.mark.long)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Shorten the ids of tests whose parameter is a long text: every report of a test repeats its id."""
    return f"{val[:_MAX_ID_LENGTH]!r}" if isinstance(val, str | bytes) and len(val) > _MAX_ID_LENGTH else None


@pytest.fixture(scope="module", autouse=True)
def forked_collectors(request: pytest.FixtureRequest) -> Iterator[None]:
    """Starts collectors as forks, except in the rooms that test how one starts and ends, or a real driver."""
    from gpumon.streams import child
    from tests import forked_collector  # late: the process that distributes the tests needs none

    with pytest.MonkeyPatch.context() as patch:
        if request.path.parent.name not in {"collect", "streams", "gpu"}:
            patch.setattr(child, "subprocess", forked_collector.replaced())
        yield


@pytest.fixture(scope="session")
def nvml_mock(tmp_path_factory: pytest.TempPathFactory) -> NvmlMock:
    """A stand-in for the NVIDIA driver's library."""
    return _built(tmp_path_factory, old=False)


@pytest.fixture(scope="session")
def old_nvml_mock(tmp_path_factory: pytest.TempPathFactory) -> NvmlMock:
    """The stand-in of a driver of about 2020, without the second versions of calls."""
    return _built(tmp_path_factory, old=True)


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder with a name so short that a socket in it has a path that the kernel takes: 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="gpumon-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def sleepers() -> Iterator[Callable[[int], list[int]]]:
    """Starts processes that do nothing, to stand on GPUs; returns their PIDs."""
    started: list[subprocess.Popen[bytes]] = []

    def start(count: int) -> list[int]:
        new = [subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL) for _ in range(count)]
        started.extend(new)
        return [process.pid for process in new]

    yield start
    for process in started:
        process.kill()
    for process in started:
        process.wait()


def _built(tmp_path_factory: pytest.TempPathFactory, old: bool) -> NvmlMock:
    if compiler() is None:
        pytest.skip("needs a C compiler (cc or gcc) to build the stand-in for libnvidia-ml.so.1")
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / f"nvml_mock{'_old' * old}"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:  # the first worker of pytest builds it for all
        fcntl.flock(lock, fcntl.LOCK_EX)
        return build(folder, old)
