"""The reduced collector on Python 3.6 to 3.9: through a real sshd, with faults, and its tables are gpumon's."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpumon.collect import nvml
from gpumon.collect.loop import _NO_DEVICES
from gpumon.collect.processes import INITIAL_PID_NAMESPACE, NOT_VISIBLE, UNPROVEN
from gpumon.collect.readers import _ECC_FIELDS, _RETIRED_PAGES
from gpumon.collect.schedule import NEEDS_TWO_SAMPLES
from gpumon.core.frames import NOT_RECORDED, SCHEMA, decode
from gpumon.core.metrics import METRICS
from gpumon.core.model import HOST_RATES, ComputeMode, Device, DeviceState, Frame, Switch
from gpumon.core.problems import Problem, ProblemCode
from gpumon.streams.remote import old_python, stream
from gpumon.streams.remote.bundle import reduced_collector
from tests.nvml_mock import NvmlMock
from tests.processes import sleeper
from tests.streams.remote_host import environment_without_gpumon, needs_sshd, ssh_server
from tests.streams.test_remote import connected, next_frame

VERSIONS = ("3.6", "3.7", "3.8", "3.9")
STATIC = ("name", "uuid", "pci_bus_id", "architecture", "compute_capability", "vbios_version", "ecc_mode", "mig_mode")
LIMITS = ("memory_total_bytes", "power_limit_watts", "clock_sm_max_hertz", "temperature_slowdown_celsius")


def old_python_of(version: str) -> str:
    for python in sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), reverse=True):
        return str(python)
    pytest.skip(f"no Python {version} here")


def problem(name: str) -> Problem:
    entry = old_python.PROBLEM_BY_NAME[name]
    return Problem(ProblemCode(entry["code"]), entry["reason"], entry.get("remedy", ""))


@contextmanager
def frames(mock: NvmlMock, fault: str = "", python: str = sys.executable, **more: str) -> Iterator[Iterator[Frame]]:
    """Frames of the reduced collector as a child, on any Python."""
    program = f"{reduced_collector().decode()}\nrun(0.1)\n"
    environment = mock.environment(gpus=2, fault=fault) | more
    with subprocess.Popen(
        [python, "-I", "-S", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        yield map(decode, child.stdout)
        child.stdin.close()
        assert child.wait(10) == 0


def test_its_tables_are_those_of_the_collector() -> None:
    codes = [int(name) for name in old_python.PROBLEM_BY_NAME if name.isdigit()]
    assert {code: problem(str(code)) for code in codes} == {code: nvml.failure(code).problem for code in codes}
    named = {"NO_DEVICES": _NO_DEVICES, "NOT_VISIBLE": NOT_VISIBLE, "UNPROVEN": UNPROVEN}
    assert {name: problem(name) for name in named} == named
    assert problem("NEEDS_TWO_SAMPLES").reason == NEEDS_TWO_SAMPLES.reason
    assert [(1 << place, name) for place, name in enumerate(old_python.THROTTLE_REASONS)] == sorted(
        nvml.THROTTLE_REASONS
    )
    assert old_python.ARCHITECTURES.items() <= nvml.ARCHITECTURES.items()
    assert old_python.SCHEMA == SCHEMA
    assert tuple(old_python.HOST_RATES) == HOST_RATES
    assert old_python.PID_NAMESPACE == INITIAL_PID_NAMESPACE
    assert tuple(switch.value for switch in Switch) == old_python.SWITCHES
    assert tuple(mode.value for mode in ComputeMode) == old_python.COMPUTE_MODES
    assert set(old_python.METRICS) <= set(METRICS)
    fields = {name: field for field, _, name in old_python.FIELD_ROWS}
    assert fields.items() >= dict((*_ECC_FIELDS, *_RETIRED_PAGES)).items()


def test_the_document_lists_what_it_reads() -> None:
    text = (Path(__file__).parents[2] / "docs/fleet.md").read_text()
    section = text.partition("### Old Pythons")[2].partition("## Jobs")[0]
    assert set(old_python.METRICS) <= set(re.findall(r"`(\w+)`", section))


@needs_sshd
@pytest.mark.sampled(1)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_host_with_an_old_python_through_a_real_sshd(version: str, nvml_mock: NvmlMock, tmp_path: Path) -> None:
    python = old_python_of(version)
    with sleeper() as child:
        pid = child.pid
        settings = environment_without_gpumon(nvml_mock, tmp_path, python, NVML_MOCK_PIDS=str(pid))
        with ssh_server(tmp_path, settings) as ssh, connected(ssh) as remote_stream:
            next_frame(remote_stream)
            frame = next_frame(remote_stream)
            assert remote_stream.problem is None
        child.kill()
    assert list((tmp_path / "home").iterdir()) == []
    device = frame.devices[0]
    assert len(frame.devices) == 3
    assert (frame.driver_version, frame.cuda_driver_version) == ("580.95.05", "13.0")
    assert device.processes is not None
    process = device.processes[0]
    assert (process.pid, process.user) == (pid, "root") or process.user
    assert "sleep" in (process.command or "")
    assert device.problems["sm_activity_percent"].reason.startswith("Not in the reduced collector")
    assert NOT_RECORDED not in device.problems.values()
    assert NOT_RECORDED not in frame.host.problems.values()


def test_its_frames_agree_with_those_of_the_collector(nvml_mock: NvmlMock, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in nvml_mock.environment(gpus=2).items():
        monkeypatch.setenv(name, value)
    from gpumon.operations.one_shot import sample_frame

    full = sample_frame().devices[1]
    with frames(nvml_mock) as reduced:
        device = next(reduced).devices[1]
    assert [getattr(device, name) for name in STATIC] == [getattr(full, name) for name in STATIC]
    assert [device.get(name) for name in LIMITS] == [full.get(name) for name in LIMITS]
    assert set(device.readings) >= set(full.readings) & set(old_python.METRICS)


def test_faults_cost_what_they_touch(nvml_mock: NvmlMock) -> None:
    def devices(fault: str) -> tuple[Device, ...]:
        with frames(nvml_mock, fault) as reduced:
            return next(reduced).devices

    healthy, lost = devices("lost:1")
    assert (healthy.state, lost.state) == (DeviceState.OK, DeviceState.LOST)
    assert lost.problems["power_watts"].code is ProblemCode.GPU_LOST
    old = devices("nofunc:nvmlDeviceGetMemoryInfo_v2")[0]
    assert old.get("memory_used_bytes")
    assert old.problems["memory_reserved_bytes"].code is ProblemCode.DRIVER_TOO_OLD
    refused = devices("noperm:procs")[0]
    assert refused.processes is None
    assert refused.problems["processes"].code is ProblemCode.NO_PERMISSION
    with frames(nvml_mock, LD_LIBRARY_PATH=str(nvml_mock.folder / "none")) as reduced:
        assert next(reduced).problems["driver"].code is ProblemCode.LIBRARY_NOT_FOUND


def test_it_ends_with_its_input_while_the_driver_hangs(nvml_mock: NvmlMock) -> None:
    with frames(nvml_mock, "hang:1@2c=60"):
        pass


def test_a_newer_python_of_the_host_is_preferred(tmp_path: Path) -> None:
    (tmp_path / "sh").symlink_to("/bin/sh")
    for name, code in (("python3", 1), ("python3.12", 0)):
        script = f"""#!/bin/sh\ncase "$2" in *sys.exit*) exit {code};; esac\necho {name}\n"""
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", "-c", stream.remote_command(1.0)], env={"PATH": str(tmp_path)}, capture_output=True, check=False
    )
    assert done.stdout == b"python3.12\n", done.stderr
