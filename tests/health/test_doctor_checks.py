"""The doctor's checks one by one: a healthy host, and one fault at a time."""

from dataclasses import replace
from typing import Any

import pytest

from gpumon.core.model import ComputeMode, DeviceState, Frame, Switch
from gpumon.core.problems import Problem, ProblemCode
from gpumon.health.checks import Check, Status
from gpumon.health.doctor.check import Facts
from gpumon.health.doctor.facts import DeviceNode, KernelErrors, PciDevice, Pythons
from gpumon.health.doctor.rules import CHECK_IDS, in_order, ready
from tests import builders
from tests.health.doctor_facts import (
    ENVIRONMENT,
    FILES,
    LIMITS,
    NO_DRIVER,
    TOPOLOGY,
    facts,
    gpu,
    machine,
    start,
    without_driver,
)

HUNG = Problem(ProblemCode.UNRESPONSIVE, "NVML did not answer within 9.5 s.", "Reboot.")


def checks(result: Facts) -> dict[str, Check]:
    """All checks of a host by ID."""
    return {check.id: check for check in ready(result, ())}


def judged(check_id: str, result: Facts) -> Check:
    return checks(result)[check_id]


# All checks


def test_a_machine_that_is_well() -> None:
    result = checks(facts())
    assert {check.id: check.detail for check in result.values() if check.status in {Status.FAIL, Status.WARN}} == {}
    assert set(CHECK_IDS) <= set(result)
    assert {check_id.partition(".")[0] for check_id in result} == {
        "driver", "gpu", "host", "environment", "python", "python1",
    }  # fmt: skip
    skipped = {check.id for check in result.values() if check.status is Status.SKIP}
    assert skipped == {"driver.fabric_manager", "python1.allocator"}


def test_what_is_wrong_says_what_to_do_and_what_is_not_does_not() -> None:
    for check in (*checks(facts()).values(), *checks(facts(without_driver())).values()):
        assert bool(check.fix) == (check.status in {Status.FAIL, Status.WARN}), check


def test_checks_are_made_as_soon_as_their_facts_are_there() -> None:
    whole = facts()
    some = {kind: fact for kind, fact in whole.items() if kind.__name__ in {"HostLimits", "Environment"}}
    first = list(ready(some, ()))
    assert {check.id for check in first} >= {"host.shm", "host.ulimits", "environment.cuda"}
    assert not {check.id for check in first} & {"gpu.ecc", "driver.nvml", "environment.visible_devices", "python.found"}
    rest = list(ready(whole, {check.id for check in first}))
    assert not {check.id for check in first} & {check.id for check in rest}
    assert {check.id for check in (*first, *rest)} == set(checks(whole))


def test_they_are_reported_in_one_order_whatever_came_first() -> None:
    result = list(ready(facts(), ()))
    assert in_order(reversed([check for check in result if "python1" not in check.id]))[0].id == "driver.loaded"
    assert [check.id for check in in_order(result)][: len(CHECK_IDS)] == list(CHECK_IDS)


def test_a_fact_that_could_not_be_gathered_costs_its_checks_alone() -> None:
    whole = checks(facts())
    result = checks(facts(PciTopology=HUNG))
    changed = {check_id for check_id, check in result.items() if check != whole[check_id]}
    assert changed == {"host.numa", "host.acs", "host.iommu"}
    assert all(result[check_id] == Check(check_id, Status.SKIP, HUNG.reason) for check_id in changed)


# Driver


def test_a_machine_without_a_driver() -> None:
    bare = replace(FILES, version=None, modules=(), nodes=())
    missing = {name: {"path": "", "error": f"{name}: cannot open"} for name in ("libcuda.so.1", "libnvidia-ml.so.1")}
    result = checks(
        facts(
            without_driver(),
            DriverFiles=bare,
            CudaStart=start(libraries={"libraries": missing}, version="OSError", init=None, devices=None, peers=None),
            PciTopology=replace(TOPOLOGY, devices=()),
        )
    )
    failed = {check_id for check_id, check in result.items() if check.status is Status.FAIL}
    assert failed == {"driver.loaded", "driver.nvml", "driver.cuda", "driver.nodes"}
    assert result["driver.nvml"].detail == NO_DRIVER.reason
    assert result["gpu.ecc"] == Check("gpu.ecc", Status.SKIP, NO_DRIVER.reason)


def test_a_driver_that_hangs() -> None:
    result = checks(facts(HUNG))
    assert result["driver.nvml"] == Check("driver.nvml", Status.FAIL, HUNG.reason, HUNG.remedy)
    assert result["driver.loaded"].status is Status.OK, "the kernel module is there"
    assert result["gpu.answers"].status is Status.SKIP


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": None, "modules": ("nouveau",)}, "nouveau"),
        ({"version": None, "modules": (), "is_container": True}, "container"),
        ({"version": None, "modules": ()}, "is not loaded"),
    ],
)
def test_no_kernel_module(changes: dict[str, Any], words: str) -> None:
    check = judged("driver.loaded", facts(without_driver(), DriverFiles=replace(FILES, **changes)))
    assert check.status is Status.FAIL
    assert words in check.detail


def test_versions_that_differ() -> None:
    older = {"libcuda.so.1": {"path": "/usr/lib/libcuda.so.570.86.15", "error": ""}}
    check = judged("driver.versions", facts(CudaStart=start(libraries={"libraries": older})))
    assert check.status is Status.FAIL
    assert "kernel module 580.95.05, libcuda.so.1 570.86.15" in check.detail


@pytest.mark.parametrize(
    ("code", "words"),
    [(802, "fabric"), (803, "does not match"), (100, "no GPU"), (999, "unknown error"), (714, "does not initialize")],
)
def test_cuda_that_does_not_start(code: int, words: str) -> None:
    broken = start(init={"code": code, "name": "CUDA_ERROR_X"}, devices=None, peers=None)
    check = judged("driver.cuda", facts(CudaStart=broken))
    assert check.status is Status.FAIL
    assert words in check.detail
    assert "CUDA_ERROR_X" in check.detail
    assert judged("host.p2p", facts(CudaStart=broken)).status is Status.SKIP


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ((), "no device nodes"),
        (FILES.nodes[1:], "no /dev/nvidiactl"),
        (FILES.nodes[:3], "Only 1 of 2 GPUs"),
        ((*FILES.nodes[:3], DeviceNode("/dev/nvidia1", "rw-------", False)), "/dev/nvidia1 (rw-------)"),
    ],
)
def test_device_nodes(nodes: tuple[DeviceNode, ...], words: str) -> None:
    check = judged("driver.nodes", facts(DriverFiles=replace(FILES, nodes=nodes)))
    assert check.status is Status.FAIL
    assert words in check.detail


@pytest.mark.parametrize(("error", "words"), [("EPERM", "cgroup"), ("EIO", "cannot be opened")])
def test_nodes_that_are_refused(error: str, words: str) -> None:
    check = judged("driver.cgroup", facts(CudaStart=start(nodes={"opened": {"/dev/nvidia0": error}})))
    assert check.status is Status.FAIL
    assert words in check.detail
    assert "/dev/nvidia0" in check.detail


@pytest.mark.parametrize(
    ("code", "runs", "status"),
    [(802, True, Status.FAIL), (0, False, Status.OK), (0, True, Status.OK), (3, False, Status.WARN)],
)
def test_nvswitch_needs_its_manager(code: int, runs: bool, status: Status) -> None:
    files = replace(FILES, switches=4, has_fabric_manager=runs)
    result = facts(DriverFiles=files, CudaStart=start(init={"code": code, "name": ""}))
    assert judged("driver.fabric_manager", result).status is status


# GPUs


def one_bad(**changes: Any) -> Facts:  # noqa: ANN401
    """A host whose second GPU is changed."""
    return facts(machine(devices=(gpu(0), gpu(1, **changes))))


@pytest.mark.parametrize(
    ("check_id", "changes", "status"),
    [
        ("gpu.answers", {"state": DeviceState.LOST, "problems": {"state": HUNG}}, Status.FAIL),
        ("gpu.persistence", {"persistence_mode": Switch.DISABLED}, Status.WARN),
        ("gpu.ecc", {"ecc_mode_pending": Switch.DISABLED}, Status.WARN),
        ("gpu.ecc", {"readings": {"ecc_uncorrected_volatile_count": 2}}, Status.FAIL),
        ("gpu.row_remap", {"readings": {"remapped_rows_pending": 1}}, Status.WARN),
        ("gpu.row_remap", {"readings": {"remapped_rows_failure": 1}}, Status.FAIL),
        ("gpu.pcie", {"readings": {"pcie_width": 8}}, Status.WARN),
        ("gpu.pcie", {"readings": {"pcie_generation": 1}}, Status.WARN),
        ("gpu.slowdown", {"throttle_reasons": ("hw_slowdown", "hw_thermal_slowdown")}, Status.WARN),
        ("gpu.slowdown", {"throttle_reasons": ("sw_power_cap",)}, Status.OK),
        ("gpu.clocks", {"throttle_reasons": ("applications_clocks_setting",)}, Status.WARN),
        ("gpu.clocks", {"readings": {"clock_sm_hertz": 600_000_000}}, Status.WARN),
        ("gpu.mig", {"mig_mode": Switch.ENABLED, "mig_mode_pending": Switch.ENABLED}, Status.WARN),
        ("gpu.mig", {"mig_mode_pending": Switch.ENABLED}, Status.WARN),
        ("gpu.compute_mode", {"compute_mode": ComputeMode.PROHIBITED}, Status.FAIL),
        ("gpu.compute_mode", {"compute_mode": ComputeMode.EXCLUSIVE_PROCESS}, Status.WARN),
        ("gpu.other_users", {"processes": (builders.process(7, user="bob"),)}, Status.WARN),
        ("gpu.unowned_memory", {"readings": {"memory_unattributed_bytes": 9 << 30}}, Status.WARN),
    ],
)
def test_a_gpu_that_is_not_well(check_id: str, changes: dict[str, Any], status: Status) -> None:
    check = judged(check_id, one_bad(**changes))
    assert check.status is status
    assert "GPU 1" in check.detail, "the one that it is about"
    assert ("GPU 0" in check.detail) is False


def test_what_the_driver_does_not_tell_is_skipped() -> None:
    bare = gpu(
        0, ecc_mode=None, ecc_mode_pending=None, persistence_mode=None, mig_mode=None, mig_mode_pending=None,
        compute_mode=None, throttle_reasons=None, processes=None,
        readings={"remapped_rows_pending": None, "remapped_rows_failure": None, "memory_unattributed_bytes": None},
    )  # fmt: skip
    result = checks(facts(machine(devices=(bare,))))
    for name in ("ecc", "persistence", "row_remap", "slowdown", "mig", "compute_mode", "other_users", "unowned_memory"):
        assert result[f"gpu.{name}"].status is Status.SKIP, name


@pytest.mark.parametrize(
    ("numbers", "status"), [((43, 45), Status.OK), ((31,), Status.WARN), ((45, 79), Status.FAIL), ((), Status.OK)]
)
def test_errors_in_the_kernel_log(numbers: tuple[int, ...], status: Status) -> None:
    errors = KernelErrors(tuple(("0000:1b:00", number) for number in numbers))
    check = judged("gpu.xid", facts(KernelErrors=errors))
    assert check.status is status
    assert all(f"Xid {number}" in check.detail for number in numbers)


# The host


@pytest.mark.parametrize(
    ("check_id", "changes", "status", "words"),
    [
        ("host.shm", {"shared_bytes": 64 << 20, "shared_free_bytes": 64 << 20}, Status.WARN, "64.0 MiB"),
        ("host.shm", {"shared_free_bytes": 1 << 20}, Status.WARN, "nearly full"),
        ("host.shm", {"shared_bytes": None}, Status.FAIL, "no /dev/shm"),
        ("host.ulimits", {"open_files": 1024}, Status.WARN, "1024 open files"),
        ("host.ulimits", {"locked_bytes": 8 << 20}, Status.OK, "no InfiniBand"),
        ("host.ulimits", {"locked_bytes": 8 << 20, "has_infiniband": True}, Status.WARN, "locked memory"),
        ("host.cgroup", {"memory_bytes": 16 << 30}, Status.WARN, "exit code 137"),
        ("host.cgroup", {"memory_bytes": 1 << 40, "cpus_quota": 4.0}, Status.OK, "4 CPUs"),
        ("host.numa", {"cpus_allowed": frozenset({6})}, Status.WARN, "GPUs 0-1"),
    ],
)
def test_limits(check_id: str, changes: dict[str, Any], status: Status, words: str) -> None:
    check = judged(check_id, facts(HostLimits=replace(LIMITS, **changes)))
    assert check.status is status
    assert words in check.detail


def test_gpus_that_do_not_reach_each_other() -> None:
    check = judged("host.p2p", facts(CudaStart=start(peers={"count": 2, "apart": [[0, 1], [1, 0]]})))
    assert check.status is Status.WARN
    assert "pairs of GPUs: 0-1." in check.detail


@pytest.mark.parametrize(("kind", "status"), [("DMA-FQ", Status.WARN), ("identity", Status.OK), ("", Status.OK)])
def test_an_iommu_between_the_gpus(kind: str, status: Status) -> None:
    devices = tuple(PciDevice(device.bus_id, iommu=kind) for device in TOPOLOGY.devices)
    assert judged("host.iommu", facts(PciTopology=replace(TOPOLOGY, devices=devices))).status is status


# CUDA_VISIBLE_DEVICES, which needs the GPUs


def visible(value: str, *indices: int | None) -> Check:
    """The check of a value with which CUDA gives the GPUs these indices."""
    frame: Frame = machine(devices=tuple(gpu(place, cuda_index=index) for place, index in enumerate(indices)))
    environment = replace(ENVIRONMENT, variables={"CUDA_VISIBLE_DEVICES": value})
    return judged("environment.visible_devices", facts(frame, Environment=environment))


def test_devices_that_are_visible() -> None:
    assert visible("1", None, 0).status is Status.OK
    assert visible("1,0", 1, 0).status is Status.OK
    assert visible("0,7", 0, None).status is Status.FAIL
    assert visible("", None, None).status is Status.FAIL
    assert visible("-1", None, None).status is Status.FAIL
    assert visible("GPU-nonsense", None, None).status is Status.FAIL


def test_no_python_at_all() -> None:
    check = judged("python.found", facts(Pythons=Pythons()))
    assert check.status is Status.WARN
    assert "--python" in check.fix
