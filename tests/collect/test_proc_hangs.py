"""A /proc or a directory of users that does not answer: it costs what hangs, and no GPU."""

import os
import pwd
import time
from collections.abc import Callable

import pytest

from gpumon.collect.processes import MAX_STUCK_READS
from gpumon.collect.sweeper import MAX_STUCK_THREADS
from gpumon.core.frames import to_document
from gpumon.core.model import DeviceState, Process
from gpumon.core.problems import ProblemCode
from tests.collect.bench import POWER, Bench, Gate
from tests.collect.fake import LOST, NO_PERMISSION, entry
from tests.collect.proc import add_process
from tests.processes import eventually

COMPUTE = "nvmlDeviceGetComputeRunningProcesses"
OK = [DeviceState.OK] * 4


def states(bench: Bench) -> list[DeviceState]:
    return [slot.device.state for slot in bench.sweeper.slots]


def processes(bench: Bench, device: int = 0) -> list[Process]:
    return list(bench.sweeper.slots[device].device.processes or ())


def threads_in_proc(bench: Bench) -> int:
    return len(bench.sweeper._in_host)


def add_processes(bench: Bench, count: int) -> range:
    """Puts ``count`` processes on each GPU."""
    pids = range(4000, 4000 + count)
    for pid in pids:
        add_process(bench.proc, pid)
    bench.fake.answer(COMPUTE, [entry(pid, 1) for pid in pids])
    return pids


def test_one_process_that_hangs_costs_its_facts_alone(bench: Bench) -> None:
    add_processes(bench, 2)
    hung = bench.hang_file(4000)
    assert bench.sweep_past_what_hangs()
    assert states(bench) == OK
    assert bench.quarantined() == [False] * 4
    assert all(slot.read_at is not None for slot in bench.sweeper.slots)
    assert bench.sweeper.threads_stuck == 0  # none in the driver
    assert threads_in_proc(bench) == 1  # it is on four GPUs, and held one thread
    for device in range(4):
        silent, fine = processes(bench, device)
        assert silent.memory_bytes
        assert silent.problems["command"].code is ProblemCode.UNRESPONSIVE
        assert "/proc" in silent.problems["user"].reason
        assert fine.command == "python train.py"
    hung.open()
    assert eventually(lambda: threads_in_proc(bench) == 0)
    time.sleep(1)  # the lists of processes are read about once a second
    assert bench.sweep()
    assert [process.command for process in processes(bench)] == ["python train.py"] * 2


def test_a_thread_that_was_left_in_proc_changes_nothing_when_it_comes_back(bench: Bench) -> None:
    add_processes(bench, 1)
    hung = bench.hang_file(4000)
    assert bench.sweep_past_what_hangs()
    hung.open()
    assert eventually(lambda: threads_in_proc(bench) == 0)
    assert bench.table._known == {}
    assert not bench.table._reading


def test_many_processes_that_hang_hold_few_threads(bench: Bench) -> None:
    pids = add_processes(bench, 8)
    for pid in pids:
        bench.hang_file(pid)
    assert bench.sweep_past_what_hangs()
    assert states(bench) == OK
    assert threads_in_proc(bench) == MAX_STUCK_READS
    assert len(processes(bench)) == 8


def test_a_directory_of_users_that_hangs_costs_the_names(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = add_processes(bench, 4)
    gate = Gate()
    bench.gates.append(gate)
    real: Callable[[int], pwd.struct_passwd] = pwd.getpwuid

    def hanging(uid: int) -> pwd.struct_passwd:
        gate()
        return real(uid)

    monkeypatch.setattr(pwd, "getpwuid", hanging)
    assert bench.sweep_past_what_hangs()
    assert states(bench) == OK
    assert threads_in_proc(bench) == 1
    assert [(process.pid, process.user, process.command) for process in processes(bench)] == [
        (pid, str(os.getuid()), "python train.py") for pid in pids
    ]
    gate.open()
    assert eventually(lambda: threads_in_proc(bench) == 0)
    time.sleep(1)
    assert bench.sweep()
    assert {process.user for process in processes(bench)} == {real(os.getuid()).pw_name}


def test_a_process_that_hangs_is_no_fault_of_the_driver_in_the_frame(bench: Bench) -> None:
    add_processes(bench, 1)
    bench.hang_file(4000)
    frame = bench.collector().tick()
    while any(device.state is not DeviceState.OK for device in frame.devices):
        frame = bench.collector().tick()
    assert frame.problems == {}
    problems = [problem for device in frame.devices for problem in device.problems.values()]
    assert not [problem for problem in problems if problem.code is ProblemCode.UNRESPONSIVE]


def test_a_proc_that_hangs_completely_is_named(bench: Bench) -> None:
    pids = add_processes(bench, MAX_STUCK_THREADS + 1)
    collector = bench.collector()
    collector.tick()
    for pid in pids:
        bench.hang_file(pid, "stat")
    deadline = time.monotonic() + 5
    frame = collector.tick()
    while "processes" not in frame.problems and time.monotonic() < deadline:
        frame = collector.tick()
    assert set(frame.problems) == {"processes"}
    assert "/proc/" in frame.problems["processes"].reason
    assert {device.state for device in frame.devices} == {DeviceState.UNRESPONSIVE}
    assert all("/proc" in device.problems["state"].reason for device in frame.devices)
    assert frame.sweep.threads_stuck == 0


def test_two_gpus_that_hang_in_one_sweep_do_not_age_the_others(bench: Bench) -> None:
    collector = bench.collector()
    collector.tick()
    for device in (0, 1):
        bench.hang(device)
    frame = collector.tick()
    silent, ok = DeviceState.UNRESPONSIVE, DeviceState.OK
    assert [device.state for device in frame.devices][2:] == [ok, ok]
    assert "driver" not in frame.problems
    frame = collector.tick()
    assert [device.state for device in frame.devices] == [silent, silent, ok, ok]


def test_each_null_of_a_device_that_cannot_be_read_has_its_reason(bench: Bench) -> None:
    bench.hang(0, "nvmlDeviceGetUUID")
    bench.fake.answer("nvmlDeviceGetHandleByIndex", LOST, 1)
    bench.fake.answer("nvmlDeviceGetHandleByIndex", NO_PERMISSION, 2)
    bench.fake.answer(POWER, ZeroDivisionError("by zero"), 3)
    document = to_document(bench.collector().tick())
    assert [device["state"] for device in document["devices"]] == ["unresponsive", "lost", "excluded", "unresponsive"]
    for device in document["devices"]:
        assert not [name for name, value in device.items() if value is None and name not in device["problems"]]
