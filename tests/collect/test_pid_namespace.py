"""PIDs of the driver in another PID namespace: a process is identified only if its identity is proved."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gpumon
from gpumon.collect.calls import CallsInFlight
from gpumon.collect.processes import INITIAL_PID_NAMESPACE, NOT_VISIBLE, UNPROVEN, PidProof, ProcessTable, pid_proof
from gpumon.core.frames import decode
from gpumon.core.model import Frame
from gpumon.core.problems import ProblemCode
from tests.collect.conftest import Live
from tests.collect.proc import add_process, set_pid_namespace
from tests.nvml_mock import NvmlMock
from tests.processes import IS_INITIAL

CONTAINER = "pid:[4026532178]"
OLD_DRIVER, NEW_DRIVER = "535.183.01", "580.95.05"
FACTS = ("user", "command", "cpu_percent", "host_memory_bytes", "age_seconds")


def table(proc: Path, driver_version: str | None = NEW_DRIVER) -> ProcessTable:
    made = ProcessTable(CallsInFlight(), proc)
    made.set_driver_version(driver_version)
    return made


def open_file(proc: Path, pid: int, target: str) -> None:
    """Gives a process an open file."""
    folder = proc / str(pid) / "fd"
    folder.mkdir(exist_ok=True)
    (folder / str(len(list(folder.iterdir())))).symlink_to(target)


@pytest.mark.parametrize(
    ("link", "own_pids", "driver", "proof"),
    [
        (INITIAL_PID_NAMESPACE, "7", OLD_DRIVER, PidProof.INITIAL_NAMESPACE),
        (INITIAL_PID_NAMESPACE, "7", None, PidProof.INITIAL_NAMESPACE),
        (CONTAINER, "7", NEW_DRIVER, PidProof.OPEN_DEVICE),
        (CONTAINER, "7", "545.23.06", PidProof.OPEN_DEVICE),
        (CONTAINER, "7", OLD_DRIVER, PidProof.NONE),
        (CONTAINER, "7", None, PidProof.NONE),
        (CONTAINER, "7", "unknown", PidProof.NONE),
        (CONTAINER, "4000 7", NEW_DRIVER, PidProof.NONE),  # /proc belongs to the parent namespace
    ],
)
def test_what_proves_a_pid(tmp_path: Path, link: str, own_pids: str, driver: str | None, proof: PidProof) -> None:
    set_pid_namespace(tmp_path, link, own_pids)
    assert pid_proof(str(tmp_path), driver) is proof


def test_a_kernel_without_pid_namespaces_has_one_namespace(tmp_path: Path) -> None:
    (tmp_path / "self" / "ns").mkdir(parents=True)
    assert pid_proof(str(tmp_path), None) is PidProof.INITIAL_NAMESPACE


def test_a_proc_without_this_process_proves_nothing(tmp_path: Path) -> None:
    assert pid_proof(str(tmp_path), NEW_DRIVER) is PidProof.NONE


def test_this_process_agrees_with_the_kernel() -> None:
    assert (pid_proof("/proc", OLD_DRIVER) is PidProof.INITIAL_NAMESPACE) is IS_INITIAL


@pytest.mark.parametrize("driver", [OLD_DRIVER, NEW_DRIVER, None])
def test_in_a_container_a_colliding_pid_is_not_identified(tmp_path: Path, driver: str | None) -> None:
    set_pid_namespace(tmp_path, CONTAINER)
    add_process(tmp_path, 4000)
    open_file(tmp_path, 4000, "/dev/null")
    facts = table(tmp_path, driver).facts(4000, 0, 5000)
    assert facts.problem == UNPROVEN
    assert [getattr(facts, name) for name in FACTS] == [None] * 5
    assert "--pid=host" in UNPROVEN.remedy


def test_in_a_container_a_process_with_an_open_gpu_is_identified_if_the_driver_translates_pids(tmp_path: Path) -> None:
    set_pid_namespace(tmp_path, CONTAINER)
    add_process(tmp_path, 4000)
    open_file(tmp_path, 4000, "/dev/null")
    open_file(tmp_path, 4000, "/dev/nvidia0")
    assert table(tmp_path).facts(4000, 0, 5000).command == "python train.py"
    assert table(tmp_path, OLD_DRIVER).facts(4000, 0, 5000).problem == UNPROVEN


def test_in_a_container_a_process_that_proc_does_not_show_is_not_visible(tmp_path: Path) -> None:
    set_pid_namespace(tmp_path, CONTAINER)
    assert table(tmp_path).facts(4000, 0, 5000).problem == NOT_VISIBLE


def test_a_process_that_is_proved_later_is_identified_then(tmp_path: Path) -> None:
    set_pid_namespace(tmp_path, CONTAINER)
    add_process(tmp_path, 4000)
    processes = table(tmp_path)
    assert processes.facts(4000, 0, 5000).problem == UNPROVEN
    open_file(tmp_path, 4000, "/dev/nvidiactl")
    assert [processes.facts(4000, tick, 5000).problem for tick in range(1, 7)][-1] is None


# Through the driver's library


def first_frame(command: list[str], environment: dict[str, str]) -> Frame:
    """The first frame with devices from a collector that is started with ``command`` in front."""
    collector = [sys.executable, str(Path(gpumon.__file__).parent / "collect" / "__main__.py"), "--interval", "0.1"]
    with subprocess.Popen(
        [*command, *collector], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            for line in process.stdout:
                frame = decode(line)
                if frame.devices and frame.devices[0].processes is not None:
                    return frame
            assert process.stderr is not None
            raise AssertionError(process.stderr.read().decode())
        finally:
            process.stdin.close()
            process.wait(10)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("driver", [OLD_DRIVER, NEW_DRIVER])
def test_a_new_pid_namespace_withholds_names_of_colliding_pids(nvml_mock: NvmlMock, driver: str) -> None:
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("needs unshare of util-linux")
    namespace = [unshare, "--pid", "--fork", "--mount-proc"]
    if os.getuid():
        namespace.insert(1, "--map-root-user")
    attempt = subprocess.run([*namespace, "true"], capture_output=True, text=True, check=False)
    if attempt.returncode:
        pytest.skip(f"needs permission to create a PID namespace: {attempt.stderr.strip()}")
    environment = nvml_mock.environment(1, [1], NVML_MOCK_PROCS="1", NVML_MOCK_DRIVER=driver)
    # In the new namespace, PID 1 is the collector itself, which has no NVIDIA device file open.
    (process,) = first_frame(namespace, environment).devices[0].processes or ()
    assert process.pid == 1
    assert process.memory_bytes
    assert [getattr(process, name) for name in FACTS] == [None] * 5
    assert {process.problems[name] for name in FACTS} == {UNPROVEN}
    if pid_proof("/proc", driver) is PidProof.INITIAL_NAMESPACE:
        (process,) = first_frame([], environment).devices[0].processes or ()
        assert process.command


def test_a_refused_process_list_is_a_problem_of_the_device(live: Live) -> None:
    device = live(gpus=1, fault="noperm:procs").until(lambda frame: bool(frame.devices)).devices[0]
    assert device.processes is None
    assert device.problems["processes"].code is ProblemCode.NO_PERMISSION
    assert device.problems["processes"].reason == "Permission denied by the driver."
    assert device.problems["memory_unattributed_bytes"].code is ProblemCode.NOT_READ
    assert device.get("memory_used_bytes") is not None
