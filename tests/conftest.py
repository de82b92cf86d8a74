"""Fixtures that several folders of tests share."""

import compileall
import fcntl
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from _pytest.assertion import rewrite
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.nvml_mock import NvmlMock, build, compiler

_GPU_TESTS = Path(__file__).with_name("gpu")
_MAX_ID_LENGTH = 80

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
    """Compile all modules once: in a new clone each worker would, and that takes longer than to collect the tests."""
    if getattr(config.option, "numprocesses", None):
        folders = [config.rootpath / name for name in ("gpumon", "tests", "workloads")]
        paths = [path for folder in folders for path in folder.rglob("*.py")]
        if "not gpu" in config.option.markexpr:
            paths = [path for path in paths if path.parent != _GPU_TESTS]
        count, fork = os.cpu_count() or 1, multiprocessing.get_context("fork")
        children = [fork.Process(target=_compile, args=(config, paths[part::count])) for part in range(count)]
        for child in children:
            child.start()
        for child in children:
            child.join()


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


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Do not create the cases of a matrix that are deselected: every worker would."""
    sampled = metafunc.definition.get_closest_marker("sampled")
    if sampled is None or "not long" not in metafunc.config.option.markexpr:
        return
    if len(list(metafunc.definition.iter_markers("parametrize"))) == 1:
        parametrize, count = metafunc.parametrize, sampled.args[0]

        def of_the_first(names: str, values: Iterable[object], ids: Any = None, **options: Any) -> None:  # noqa: ANN401
            if "_param_mark" in options:
                values, ids = list(values)[:count], ids if ids is None or callable(ids) else list(ids)[:count]
            parametrize(names, values, ids=ids, **options)

        metafunc.parametrize = of_the_first  # type: ignore[method-assign, assignment]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the rest of a matrix to ``-m long``: of a test marked ``sampled(n)``, the first n cases run by default."""
    seen: Counter[str] = Counter()
    for item in items:
        sampled = item.get_closest_marker("sampled")
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
