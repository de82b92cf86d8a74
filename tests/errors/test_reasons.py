"""Reasons that another line of the log names, and fixes that only fit such a log."""

import pytest

from gpumon.errors.entry import ContextState
from gpumon.errors.explain import explain_text
from gpumon.errors.match import Match
from gpumon.errors.narrative import sections

_TIMEOUT = (
    "[rank0]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=BROADCAST, NumelIn=131072) ran"
    " for 600081 milliseconds before timing out.\n"
    "[rank0]: failure detected by watchdog at work sequence id: 1 PG status: last enqueued work: {enqueued}, last"
    " completed work: {completed}\n"
)
_OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU"


def cause_of(text: str) -> Match:
    match = explain_text(text).cause
    assert match is not None
    return match


def test_a_broken_communicator_is_no_broken_context() -> None:
    explanation = explain_text(_TIMEOUT.format(enqueued="9", completed="3"))
    (match,) = [match for match in explanation.matches if match.error.id == "nccl-timeout"]
    assert match.context is ContextState.NOT_APPLICABLE
    texts = [block.text for section in sections(explanation) for block in section.blocks]
    assert not any("every later CUDA call" in text for text in texts)


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("text_generation_launcher: Error when initializing model", "text-generation-launcher"),
        ("/opt/lmdeploy/src/turbomind/core/stream.h:27", "lmdeploy serve"),
    ],
)
def test_a_server_without_memory_gets_the_options_of_the_server(line: str, command: str) -> None:
    match = cause_of(f"{_OUT_OF_MEMORY}\n{line}\n")
    assert match.fixes[0].code.startswith(command)
    assert "weights of the model do not fit" in match.causes[0]
    assert match.context is ContextState.NOT_APPLICABLE
    assert not any("train.py" in fix.code or "from_pretrained" in fix.code for fix in match.fixes)


def test_a_message_without_sizes_is_said_to_be_cut_off() -> None:
    texts = [block.text for section in sections(explain_text(_OUT_OF_MEMORY)) for block in section.blocks]
    assert any("ends before the sizes" in text for text in texts)
