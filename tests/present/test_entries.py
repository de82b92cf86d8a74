"""Every value of a device and a process as entries: energy in kWh, and the share of each process."""

from dataclasses import replace

from gpumon.core.model import Process
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.units import kilowatt_hours_text
from gpumon.present.entries import device_entries, process_entries
from tests import builders


def entries(*processes: Process) -> list[tuple[str, str, str]]:
    return list(device_entries(replace(builders.device(0), processes=processes)))


def test_energy_is_also_in_kilowatt_hours() -> None:
    device = builders.device(0, readings={"energy_joules": 4_500_000.0})
    assert ("Energy", "4.50 MJ, 1.250 kWh") in [entry[:2] for entry in device_entries(device)]
    assert ("Energy", "–") in [entry[:2] for entry in device_entries(builders.device(0, readings={}))]
    assert kilowatt_hours_text(None) == "–"


def test_a_device_has_the_share_of_each_process_the_largest_first() -> None:
    refused = {"sm_percent": Problem(ProblemCode.NO_PERMISSION, "Permission denied by the driver.")}
    small, large = (
        Process(1, memory_bytes=1 << 30, sm_percent=3.4),
        Process(2, sm_percent=60.0, user="ana", command="x"),
    )
    unknown = Process(3, memory_bytes=1 << 20, problems=refused)
    shown = [entry for entry in entries(small, unknown, large) if entry[0].startswith("  PID")]
    assert [entry[:2] for entry in shown] == [
        ("  PID 2", "SM 60 %, memory –"),
        ("  PID 1", "SM 3 %, memory 1.00 GiB"),
        ("  PID 3", "SM –, memory 1.00 MiB"),
    ]
    assert shown[0][2] == "ana  x"
    assert "Permission denied by the driver." in shown[2][2]


def test_many_processes_are_counted() -> None:
    many = entries(*(Process(pid, sm_percent=1.0) for pid in range(20)))
    assert sum(entry[0].startswith("  PID") for entry in many) == 16
    assert "and 4 more processes" in {entry[1] for entry in many}


def test_a_process_has_its_share_of_the_sms() -> None:
    assert ("SM utilization", "35 %", "") in list(process_entries(Process(1, sm_percent=34.6), 80))
    refused = {"sm_percent": Problem(ProblemCode.NO_PERMISSION, "Permission denied by the driver.")}
    assert any(
        entry[0] == "SM utilization" and "Permission denied" in entry[2]
        for entry in process_entries(Process(1, problems=refused), 80)
    )
