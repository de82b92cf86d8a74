"""`gpumon run` and `gpumon workloads` as scripts and users run them, with real processes and a fake torch."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpumon.workload_runs.catalogue import workloads_folder
from tests.cli.running import GPUMON, is_one_line, run
from tests.fake_torch import fake_torch
from tests.nvml_mock import NvmlMock
from tests.processes import is_running, tree, wait_gone

UUID = "GPU-6d6f636b-4d6f-5b6b-8c01-000000000000"
"""UUID of the first GPU of the stand-in driver."""
WORKLOAD = """
import time
from _kit import Uses, Workload, choice, flag, integer

def run(context):
    wanted = context.parameters
    count = 0
    context.step("Counting.")
    while count < wanted.count and not context.stopping:
        count += 1
        context.progress(count, wanted.count)
        context.metric("count", count, "steps")
        time.sleep(0.02)
    if wanted.end == "crash":
        raise RuntimeError("broken on purpose")
    if count:
        context.result("count", count, "steps", count, limit=1000, limit_source="a thousand")
    if wanted.checked:
        context.checked += count
    return context.warn("Odd.") if wanted.end == "warn" else context.ok("Counted.")

WORKLOAD = Workload(
    "count", "Counts.", "nothing", lambda context: Uses(1 << 30, 1.0), run,
    (integer("count", 3, 0, 100000, "How far."), choice("end", "ok", ("ok", "warn", "crash"), "How it ends."),
     flag("checked", True, "Whether it checks.")),
)
"""
WITH_SIGNALS = """
import os, signal, sys
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)  # under nohup and in the background they are ignored
os.execv(sys.argv[1], sys.argv[1:])
"""
Environment = dict[str, str]


@pytest.fixture
def environment(nvml_mock: NvmlMock, tmp_path: Path) -> Environment:
    """Two GPUs, a workload of the user, and torch."""
    (tmp_path / "fake_torch").mkdir()
    (tmp_path / "fake_torch" / "torch.py").write_text(fake_torch(2, UUID))
    folder = tmp_path / "config" / "gpumon" / "workloads"
    folder.mkdir(parents=True)
    (folder / "count.py").write_text(WORKLOAD)
    return nvml_mock.environment(
        gpus=2,
        PYTHONPATH=str(tmp_path / "fake_torch"),
        XDG_CONFIG_HOME=str(tmp_path / "config"),
        XDG_STATE_HOME=str(tmp_path / "state"),
    )


def events(stdout: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stdout.splitlines()]


def of_kind(kind: str, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in lines if event["event"] == kind]


def test_every_event_is_a_line_of_the_public_format(environment: Environment) -> None:
    done = run("run", "count", "--device", "cpu", "--json", env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    lines = events(done.stdout)
    assert all(event["schema"] == 1 and event["device"] == "cpu" and event["time_seconds"] > 0 for event in lines)
    kinds = [event["event"] for event in lines]
    assert (kinds[0], kinds[1], kinds[-2], kinds[-1]) == ("hello", "plan", "result", "bye")
    assert {"step", "progress", "metric", "memory"} <= set(kinds)
    (result,) = of_kind("result", lines)
    assert result["verdict"] == "ok"
    assert result["figures"][0] == {
        "name": "count", "value": 3, "unit": "steps", "repetitions": 3, "limit": 1000, "limit_source": "a thousand",
        "case": "", "position": None, "better": "", "format": "number",
    }  # fmt: skip


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("settings", "code", "verdict"),
    [(["end=warn"], 0, "warn"), (["end=crash"], 1, "fail"), (["count=0"], 1, "fail"), (["checked=no"], 1, "fail")],
)
def test_the_verdict_determines_the_exit_code(
    environment: Environment, settings: list[str], code: int, verdict: str
) -> None:
    sets = [word for setting in settings for word in ("--set", setting)]
    done = run("run", "count", "--device", "cpu", "--json", *sets, env=environment)
    assert done.returncode == code
    assert of_kind("result", events(done.stdout))[0]["verdict"] == verdict


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("setting", "code"), [("end=ok", 0), ("checked=no", 1)])
@pytest.mark.parametrize("form", ["", "--csv"])
def test_a_result_that_cannot_be_saved_is_reported_and_still_counts(
    environment: Environment, tmp_path: Path, form: str, setting: str, code: int
) -> None:
    (tmp_path / "file").write_text("")
    argv = ["run", "count", "--device", "cpu", "--set", setting, *form.split()]
    done = run(*argv, env={**environment, "XDG_STATE_HOME": str(tmp_path / "file")})
    assert done.returncode == code
    assert done.stderr.count("gpumon: The result could not be saved to ") == 1
    assert "could not be saved" not in done.stdout


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["nothing"], 2, "Workloads: amp, "),
        (["count", "--set", "count=-1"], 2, "0 to 100000"),
        (["count", "--set", "count"], 2, "KEY=VALUE"),
        (["count", "--set", "cuont=1"], 2, "Parameters: count, end, checked"),
        (["count", "--set", "end=later"], 2, "ok, warn, crash"),
        (["count", "--device", "gpu"], 2, "cuda:all"),
        (["count", "--device", "cuda:2"], 3, "Choose cuda:0 to cuda:1"),
        (["count", "--python", "/bin/true"], 2, "not Python"),
        (["count", "--python", "/nowhere/python"], 2, "no program"),
        (["oom", "--device", "cpu"], 3, ""),
    ],
)
def test_an_error_is_one_line(environment: Environment, argv: list[str], code: int, words: str) -> None:
    done = run("run", *argv, env=environment)
    assert done.returncode == code
    assert is_one_line(done.stderr), done.stderr
    assert words in done.stderr


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("duration", "words"), [("0", "measures nothing"), ("soon", "is not a duration"), ("-5", "is not a duration")]
)
def test_a_duration_that_is_none_is_refused(environment: Environment, duration: str, words: str) -> None:
    done = run("run", "count", "--device", "cpu", "--duration", duration, env=environment)
    assert done.returncode == 2
    assert words in done.stderr


@pytest.mark.sampled(1)
@pytest.mark.parametrize("how", ["group", "command", "environment", "file"])
def test_read_only_starts_no_workload(environment: Environment, tmp_path: Path, how: str) -> None:
    argv = ["--read-only", "run", "count"] if how == "group" else ["run", "count"]
    argv += ["--read-only"] if how == "command" else []
    changes = {"GPUMON_READ_ONLY": "1"} if how == "environment" else {}
    if how == "file":
        (tmp_path / "mine" / "gpumon").mkdir(parents=True)
        (tmp_path / "mine" / "gpumon" / "config.toml").write_text("read_only = true\n")
        changes = {"XDG_CONFIG_HOME": str(tmp_path / "mine")}
    done = run(*argv, env={**environment, **changes})
    assert done.returncode == 2
    assert is_one_line(done.stderr), done.stderr
    assert "Workloads are disabled: gpumon is read-only." in done.stderr
    assert not done.stdout


@pytest.mark.long
@pytest.mark.parametrize("how", ["raised", "reported"])
def test_why_a_workload_is_not_supported_is_printed_once(environment: Environment, how: str) -> None:
    reason = "This torch has no such function. Use another torch."
    work = f"raise UnsupportedError({reason!r})"
    if how == "reported":
        work = f"context.error(UnsupportedError({reason!r})); return context.fail({reason!r})"
    file = Path(environment["XDG_CONFIG_HOME"], "gpumon", "workloads", "unsupported.py")
    source = WORKLOAD.replace("import Uses", "import UnsupportedError, Uses").replace(
        '"count", "C', '"unsupported", "C'
    )
    file.write_text(source.replace("    wanted = context.parameters", f"    {work}\n    wanted = context.parameters"))
    done = run("run", "unsupported", "--device", "cuda:all", "--yes", env=environment)
    assert done.returncode == (3 if how == "raised" else 1)
    assert (done.stdout + done.stderr).count(reason) == (1 if how == "raised" else 2), "once, or in each verdict"
    assert (reason in done.stderr) is (how == "raised")


@pytest.mark.long
def test_without_torch_the_error_names_the_option(environment: Environment) -> None:
    Path(environment["PYTHONPATH"], "torch.py").write_text("raise ModuleNotFoundError('torch', name='torch')")
    done = run("run", "count", "--device", "cpu", env={**environment, "PATH": "/usr/bin:/bin"})
    assert done.returncode == 3
    assert is_one_line(done.stderr)
    assert "--python" in done.stderr


def test_the_gpu_is_matched_by_uuid_and_its_metrics_join_the_result(environment: Environment) -> None:
    done = run("run", "count", "--json", "--set", "count=100", env=environment)
    assert done.returncode == 0, done.stderr
    lines = events(done.stdout)
    assert of_kind("plan", lines)[0]["chip"]["uuid"] == UUID
    figures = {metric["name"]: metric for metric in of_kind("result", lines)[0]["figures"]}
    assert figures["power"]["limit_source"] == "power limit in force"
    assert figures["sm_clock"]["repetitions"] >= 1


def test_a_mig_instance_is_the_only_device_of_a_run(environment: Environment, tmp_path: Path) -> None:
    environment |= {"NVML_MOCK_MIG": "1:2"}
    workload = tmp_path / "config" / "gpumon" / "workloads" / "count.py"
    shown = 'context.step(__import__("os").environ["CUDA_VISIBLE_DEVICES"])'
    workload.write_text(WORKLOAD.replace('context.step("Counting.")', shown))
    by_label, by_uuid = (
        of_kind("step", events(run("run", "count", "--device", device, "--json", env=environment).stdout))
        for device in ("1:1", "MIG-a5000011")
    )
    assert by_label[0]["text"] == by_uuid[0]["text"] == "MIG-a5000011-4d6f-5b6b-8c01-000000000001"
    unknown = run("run", "count", "--device", "1:2", env=environment)
    assert (unknown.returncode, unknown.stdout) == (3, "")
    assert "There is no GPU 1:2. Devices of this host: 0, 1, 1:0, 1:1." in unknown.stderr


@pytest.mark.long
def test_without_a_gpu_a_run_uses_the_cpu(environment: Environment) -> None:
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("this host has a GPU")
    without_driver = {name: value for name, value in environment.items() if name != "LD_LIBRARY_PATH"}
    done = run("run", "count", "--json", env=without_driver)
    assert done.stderr == "This host has no NVIDIA GPU. Running on the CPU.\n"
    (result,) = of_kind("result", events(done.stdout))
    assert (result["verdict"], result["device"]) == ("ok", "cpu")


@pytest.mark.long
def test_several_devices_at_once(environment: Environment) -> None:
    done = run("run", "count", "--device", "cuda:all", "--json", env=environment)
    assert done.returncode == 0
    assert sorted(event["device"] for event in of_kind("result", events(done.stdout))) == ["cuda:0", "cuda:1"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("options", "code"), [([], 3), (["--yes"], 0)])
def test_a_gpu_in_use_needs_confirmation(
    environment: Environment, sleepers: Callable[[int], list[int]], options: list[str], code: int
) -> None:
    (pid,) = sleepers(1)
    busy = {**environment, "NVML_MOCK_PIDS": str(pid), "NVML_MOCK_PROCS": "1"}
    done = run("run", "count", *options, env=busy)
    assert done.returncode == code, done.stderr
    assert (f"PID {pid}" in done.stderr) is not bool(options)
    assert ("Counted." in done.stdout) is bool(options)


@contextmanager
def in_a_terminal(environment: Environment, *argv: str) -> "Iterator[tuple[int, subprocess.Popen[bytes]]]":
    leader, follower = pty.openpty()
    env, ends = {**environment, "TERM": "xterm"}, (follower, follower, follower)
    with subprocess.Popen([GPUMON, *argv], -1, None, *ends, env=env, start_new_session=True) as process:
        os.close(follower)
        yield leader, process
    os.close(leader)


def test_in_a_terminal_the_user_can_decline(environment: Environment, sleepers: Callable[[int], list[int]]) -> None:
    (pid,) = sleepers(1)
    busy = {**environment, "NVML_MOCK_PIDS": str(pid), "NVML_MOCK_PROCS": "1"}
    with in_a_terminal(busy, "run", "count") as (leader, process):
        output = read_until(leader, b"Start anyway?")
        assert f"PID {pid}".encode() in output
        assert b"1.00 GiB" in output
        os.write(leader, b"n\n")
        output = read_until(leader, None)
        assert process.wait(20) == 3
    assert b"Counted." not in output


def test_a_terminal_shows_a_bar_with_the_remaining_time(environment: Environment) -> None:
    argv = ("run", "count", "--device", "cpu", "--set", "count=150")
    with in_a_terminal(environment, *argv) as (leader, process):
        output = read_until(leader, None)
        assert process.wait(20) == 0
    assert re.search(r"\[█+░+\] +\d+%  \d+s left  count [\d.]+ steps", output.decode())


def read_until(descriptor: int, pattern: bytes | None, seconds: float = 20) -> bytes:
    """The output up to a pattern, or to the end."""
    output = b""
    timer = threading.Timer(seconds, lambda: None)
    timer.start()
    while timer.is_alive() and (pattern is None or pattern not in output):
        try:
            data = os.read(descriptor, 4096)
        except OSError:  # the other side of the terminal is closed
            break
        if not data:
            break
        output += data
    timer.cancel()
    return output


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_run_and_the_result_is_reported(environment: Environment, number: signal.Signals) -> None:
    process, pids = started(environment)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert "Traceback" not in stderr
    result = of_kind("result", events(stdout))[0]
    assert result["verdict"] == "cancelled"
    assert result["figures"][0]["value"] >= 1
    assert all(wait_gone(pid, 10) for pid in pids)


def test_no_process_is_left_when_gpumon_is_killed(environment: Environment) -> None:
    process, pids = started(environment)
    process.kill()
    process.communicate(timeout=20)
    assert all(wait_gone(pid, 10) for pid in pids)


def started(environment: Environment) -> tuple[subprocess.Popen[str], list[int]]:
    """A run that has started, and the PIDs of all its processes."""
    process = subprocess.Popen(
        [sys.executable, "-c", WITH_SIGNALS, GPUMON, "run", "count", "--device=cpu", "--json", "--set", "count=100000"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["event"] == "progress":
            break
    pids = tree(process.pid)[1:]
    assert len(pids) >= 3, "the collector, the workload and its guard process"
    assert all(is_running(pid) for pid in pids)
    return process, pids


def test_the_list_contains_parameters_and_broken_files(environment: Environment) -> None:
    broken = Path(environment["XDG_CONFIG_HOME"], "gpumon", "workloads", "broken.py")
    broken.write_text("1 / 0")
    text = run("workloads", env=environment).stdout
    assert "--set count=3  How far. (0 to 100000)" in text
    assert f"! {broken}: ZeroDivisionError" in text
    document = json.loads(run("workloads", "--json", env=environment).stdout)
    assert document["schema"] == 1
    names = {workload["name"] for workload in document["workloads"]}
    assert names == {file.stem for file in workloads_folder().glob("[!_]*.py")} | {"count"}
    assert document["broken"][0]["file"] == str(broken)
