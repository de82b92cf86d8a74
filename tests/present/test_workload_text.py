"""Measurements, changes, parameters and planned resources as text."""

import pytest

from gpumon.present.workload_text import (
    change_text,
    label_text,
    measurement_text,
    parameter_text,
    resources_text,
    share_of_limit,
    share_text,
)
from gpumon.workload_runs.parameters import ParameterKind, WorkloadParameter


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (617.254, "TFLOP/s", "617.3 TFLOP/s"),
        (0.19071, "TFLOP/s", "0.1907 TFLOP/s"),
        (0, "elements", "0 elements"),
        (123456, "", "123456"),
        (999.94, "W", "999.9 W"),
        (999.97, "W", "1000 W"),
        (9_999_999, "", "9999999"),
        (1e7, "", "1e+07"),
        (1e-3, "s", "0.001 s"),
        (4.2e-6, "s", "4.2e-06 s"),
        (-1234.5, "", "-1234"),
        (3 << 30, "bytes", "3.00 GiB"),
        (None, "W", "–"),
        (True, "W", "–"),
        ("many", "W", "–"),
    ],
)
def test_a_measurement_has_four_digits_and_its_unit(value: object, unit: str, text: str) -> None:
    assert measurement_text(value, unit) == text


def test_shares_and_changes() -> None:
    assert share_of_limit({"value": 5, "limit": 10}) == 0.5
    for limit in (None, "wide", 0, True):
        assert share_of_limit({"value": 5, "limit": limit}) is None
    assert [share_text(share) for share in (0.5, None)] == ["50.0 %", "–"]
    assert [change_text(share) for share in (0.0123, -0.5, None)] == ["+1.2 %", "-50.0 %", ""]
    assert label_text("throughput_first_second") == "throughput first second"


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
