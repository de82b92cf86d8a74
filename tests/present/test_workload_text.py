"""Changes, parameters and planned resources as text."""

from gpumon.present.workload_text import change_text, parameter_text, resources_text, share_text
from gpumon.workload_runs.parameters import ParameterKind, WorkloadParameter


def test_shares_and_changes() -> None:
    assert [share_text(share) for share in (0.5, None)] == ["50.0 %", "–"]
    assert [change_text(share) for share in (0.0123, -0.5, None)] == ["+1.2 %", "-50.0 %", ""]


def test_parameters_are_written_as_they_are_typed() -> None:
    values = (True, False, 5.0, 0.123456789, 7, "bf16")
    assert [parameter_text(value) for value in values] == ["yes", "no", "5", "0.123456789", "7", "bf16"]
    parameter = WorkloadParameter("share", ParameterKind.NUMBER, 0.123456789, 1e-9)
    for value in (parameter.default, parameter.default_cpu):
        assert parameter.parse(parameter_text(value)) == value


def test_planned_resources_are_listed() -> None:
    assert resources_text(None) == resources_text({"uses": {"memory_bytes": 0}}) == "unknown resources"
    uses = {"memory_bytes": 1 << 30, "host_memory_bytes": 1 << 20, "seconds": 12.5, "peers": True}
    assert resources_text({"uses": uses}) == (
        "1.00 GiB of GPU memory, 1.00 MiB of host memory, about 12.5 s, the other GPUs too"
    )
