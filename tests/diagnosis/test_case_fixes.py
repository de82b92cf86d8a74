"""Fixes that name the values in the message."""

import pytest

from gpumon.diagnosis.explain import explain_text
from tests.diagnosis.texts import samples_of


@pytest.mark.parametrize(
    ("text", "command"),
    [
        (samples_of("vllm-max-len")[0], "vllm serve MODEL --max-model-len 119840"),
        (samples_of("vllm-max-len")[1], "vllm serve MODEL --max-model-len 17184"),
        (samples_of("vllm-max-len")[2], "vllm serve MODEL --max-model-len 8192"),
        (samples_of("vllm-context-limit")[0], "vllm serve MODEL --max-model-len 32768"),
    ],
)
def test_the_first_fix_names_the_length_that_fits(text: str, command: str) -> None:
    match = explain_text(text).cause
    assert match is not None
    assert match.fixes[0].code == command


def test_the_fraction_is_what_is_free_rounded_down() -> None:
    match = explain_text(samples_of("vllm-memory-taken")[1]).cause
    assert match is not None
    assert [fix.code for fix in match.fixes if "utilization" in fix.code] == [
        "vllm serve MODEL --gpu-memory-utilization 0.51"
    ]
