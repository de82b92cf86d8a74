"""Texts that a user types, and descriptions that a stranger's file gives, are values or sentences, never a crash."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.workload_runs.parameters import ParameterKind, Value, WorkloadParameter, chosen_values, parse_parameter

SIZE = WorkloadParameter("size", ParameterKind.INTEGER, 8192, 256, unit="rows", minimum=1, maximum=65536)
SHARE = WorkloadParameter("share", ParameterKind.NUMBER, 0.5, 0.1, minimum=0.0, maximum=1.0)
DTYPE = WorkloadParameter("dtype", ParameterKind.CHOICE, "bf16", "fp32", choices=("bf16", "fp32"))
CHECK = WorkloadParameter("check", ParameterKind.FLAG, True, True)
ALL = (SIZE, SHARE, DTYPE, CHECK)


@pytest.mark.parametrize(
    ("parameter", "text", "value"),
    [
        (SIZE, "1", 1),
        (SIZE, " 65536 ", 65536),
        (SIZE, "+7", 7),
        (SIZE, "१२", 12),
        (SHARE, "0", 0.0),
        (SHARE, "1e-3", 0.001),
        (SHARE, ".5", 0.5),
        (DTYPE, " fp32", "fp32"),
        (CHECK, "YES", True),
        (CHECK, "0", False),
        (CHECK, "off", False),
    ],
)
def test_a_text_means_a_value(parameter: WorkloadParameter, text: str, value: Value) -> None:
    parsed = parameter.parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("parameter", "text", "sentence"),
    [
        (SIZE, "0", "size: 0 is not 1 to 65536 rows."),
        (SIZE, "65537", "size: 65537 is not 1 to 65536 rows."),
        (SIZE, "1e3", "size: '1e3' is not an integer."),
        (SIZE, "2.0", "size: '2.0' is not an integer."),
        (SIZE, "", "size: '' is not an integer."),
        (SIZE, "9" * 400, "is not 1 to 65536 rows."),
        (SIZE, "9" * 5000, "is not an integer."),
        (SHARE, "nan", "share: nan is not 0 to 1."),
        (SHARE, "-inf", "share: -inf is not 0 to 1."),
        (SHARE, "1e999", "share: 1e999 is not 0 to 1."),
        (SHARE, "1.01", "share: 1.01 is not 0 to 1."),
        (SHARE, "", "share: '' is not a number."),
        (DTYPE, "fp4", "dtype: 'fp4' is not one of bf16, fp32."),
        (DTYPE, "", "dtype: '' is not one of bf16, fp32."),
        (CHECK, "maybe", "check: 'maybe' is neither yes nor no."),
        (CHECK, "\x1b[2J", "check: '\ufffd[2J' is neither yes nor no."),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else None,
)
def test_a_text_that_means_none_is_told_in_a_sentence(parameter: WorkloadParameter, text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=r"\.$") as error:
        parameter.parse(text)
    assert sentence in str(error.value)
    assert len(str(error.value)) < 120


def test_numbers_without_a_range_must_be_finite_all_the_same() -> None:
    free = WorkloadParameter("free", ParameterKind.NUMBER, 0.0, 0.0, unit="s")
    assert free.parse("-1e300") == -1e300
    for text in ("inf", "nan"):
        with pytest.raises(ValueError, match=r"is not a number s\."):
            free.parse(text)


@given(text=st.text(max_size=30), parameter=st.sampled_from(ALL))
def test_any_text_is_a_value_or_a_value_error(text: str, parameter: WorkloadParameter) -> None:
    try:
        value = parameter.parse(text)
    except ValueError:
        return
    assert parameter.parse(str(value)) == value


def test_what_is_not_chosen_has_the_default_of_its_device() -> None:
    texts = {"size": "12", "check": "no"}
    assert chosen_values(ALL, "cuda:0", texts) == {"size": 12, "share": 0.5, "dtype": "bf16", "check": False}
    assert chosen_values(ALL, "cpu", texts) == {"size": 12, "share": 0.1, "dtype": "fp32", "check": False}


def test_an_unknown_name_is_told_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"There is no parameter 'sise'. Parameters: size, share, dtype, check\."):
        chosen_values(ALL, "cpu", {"sise": "1"})
    with pytest.raises(ValueError, match=r"Parameters: none\."):
        chosen_values((), "cpu", {"size": "1"})


DESCRIBED: dict[str, Any] = {
    "name": "size", "kind": "integer", "default": 8192, "default_cpu": 256, "help": "Rows.", "unit": "rows",
    "minimum": 1, "maximum": 65536, "choices": [],
}  # fmt: skip


def test_a_description_becomes_a_parameter() -> None:
    parameter = parse_parameter(DESCRIBED)
    assert parameter == WorkloadParameter("size", ParameterKind.INTEGER, 8192, 256, "Rows.", "rows", 1.0, 65536.0)
    assert (parameter.range_text, DTYPE.range_text, CHECK.range_text) == ("1 to 65536 rows", "bf16, fp32", "yes or no")


def test_a_default_has_the_type_of_its_kind() -> None:
    parameter = parse_parameter({**DESCRIBED, "default": "512", "kind": "number"})
    assert (parameter.default, type(parameter.default)) == (512.0, float)


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "tensor"},
        {"kind": None},
        {"kind": []},
        {"default": 0},
        {"default": 2.5},
        {"default": None},
        {"default": True},
        {"default": []},
        {"default_cpu": 65537},
        {"default_cpu": float("nan")},
        {"minimum": "low"},
        {"minimum": []},
        {"maximum": 10**400},
        {"maximum": float("nan")},
        {"choices": 7},
        {"kind": "choice", "choices": ["a"], "default": "a", "default_cpu": "b"},
        {"kind": "choice", "choices": [], "default": "", "default_cpu": ""},
        {"kind": "flag", "default": "maybe"},
    ],
)
def test_a_description_that_makes_no_sense_is_refused(changes: Mapping[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError, OverflowError)):
        parse_parameter({**DESCRIBED, **changes})


@pytest.mark.parametrize("name", ["name", "kind", "default", "default_cpu"])
def test_a_description_that_lacks_something_is_refused(name: str) -> None:
    with pytest.raises(KeyError):
        parse_parameter({key: value for key, value in DESCRIBED.items() if key != name})


def test_texts_of_a_description_are_made_safe() -> None:
    parameter = parse_parameter({**DESCRIBED, "name": "si\x1bze", "help": "\x9b2J", "unit": "\u202erows"})
    assert (parameter.name, parameter.help, parameter.unit) == ("si\ufffdze", "\ufffd2J", "\ufffdrows")
