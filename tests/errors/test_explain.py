"""The choice of the cause among several errors, and the text of an explanation."""

from dataclasses import replace

import pytest

from gpumon.errors.documents import explanation_document
from gpumon.errors.entry import ContextState, KnownError
from gpumon.errors.explain import explain, explain_text, finder
from gpumon.errors.explanation import Explanation
from gpumon.errors.load import ERRORS
from gpumon.errors.memory import MemoryCause
from gpumon.errors.narrative import error_sections, sections
from gpumon.errors.scan import blocks
from tests.errors.corpus import noise
from tests.errors.each_error import every_error
from tests.errors.texts import WORDINGS

TEXT = dict(reversed(WORDINGS))
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.11 GiB "
    "of which 3.12 GiB is free. Process 4242 has 40.50 GiB memory in use. Including non-PyTorch memory, this process "
    "has 35.49 GiB memory in use. Of the allocated memory 30.00 GiB is allocated by PyTorch, and 3.50 GiB is reserved "
    "by PyTorch but unallocated."
)
WARNED = (
    "UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions "
    "before calling NumCudaDevices() that might have already set an error? Error 802: system not yet initialized"
)
TIMEOUT = TEXT["nccl-timeout"]
SHAPE = f"RuntimeError: {TEXT['shape']}"
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 12, in <module>\n    main()\n'


def ids(text: str) -> list[str]:
    return [match.error.id for match in explain_text(text).matches]


def cause(text: str) -> str | None:
    match = explain_text(text).cause
    return match.error.id if match else None


def full_text(explanation: Explanation) -> str:
    return "\n".join([block.text for section in sections(explanation) for block in section.blocks])


# The cause


def test_a_log_without_errors_has_no_cause() -> None:
    assert explain_text("").matches == ()
    assert explain_text("").reading.lines == 0
    assert explain_text("all is well\n").reading.lines == 1
    assert not explain_text("all is well").is_failure


def test_without_timestamps_the_first_error_in_the_file_is_the_cause() -> None:
    assert ids(f"{SHAPE}\n{OOM}") == ["shape", "oom"]
    assert ids(f"{OOM}\n{SHAPE}") == ["oom", "shape"]
    assert ids(f"{TEXT['shape']}\n{OOM}") == ["oom", "shape"], "an exception ends a program, another line may not"


def test_a_timeout_of_another_rank_is_not_the_cause() -> None:
    assert ids(f"[rank0]: {TIMEOUT}\n[rank3]: {OOM}") == ["oom", "nccl-timeout"]
    assert ids(TIMEOUT) == ["nccl-timeout"]


@pytest.mark.parametrize(
    ("early", "late"),
    [
        ("2026-11-20 12:00:01 ", "2026-11-20 12:00:02 "),
        ("[2026-11-20 12:00:01,100] ", "2026-11-20T12:00:01.200Z "),
        ("Nov 20 12:00:01 node1 ", "Nov 20 12:00:02 node2 "),
        ("E1120 12:00:01.1 1 a.cpp:1] ", "E1121 00:00:00.0 1 a.cpp:1] "),
        ("12:00:01 ", "12:00:02 "),
        ("23:59:59 ", "00:00:01 "),
        ("01:00:00 ", "12:59:59 "),
        ("[12.000001] ", "[13.000001] "),
    ],
)
def test_the_earliest_error_is_the_cause_regardless_of_its_line(early: str, late: str) -> None:
    assert ids(f"{late}[rank0]: {TEXT['shape']}\n{early}[rank1]: {OOM}") == ["oom", "shape"]


@pytest.mark.parametrize("other", ["12:00:02 ", "Nov 21 12:00:02 node1 ", "[99.000001] "])
def test_timestamps_of_two_kinds_are_not_compared(other: str) -> None:
    full = "2026-11-20 12:00:01 "
    assert ids(f"{other}{OOM}\n{full}{TEXT['shape']}") == ["oom", "shape"]
    assert ids(f"{full}{OOM}\n{other}{TEXT['shape']}") == ["oom", "shape"]


@pytest.mark.parametrize("timestamp", ["12:00:01 ", "2026-11-20 12:00:01 "])
def test_of_two_errors_with_the_same_timestamp_the_first_in_the_file_is_the_cause(timestamp: str) -> None:
    assert ids(f"{timestamp}{OOM}\n{timestamp}{TEXT['shape']}") == ["oom", "shape"]


def test_a_traceback_has_the_timestamp_of_its_rank_above_it() -> None:
    rank0 = "2026-11-20 12:00:09 [rank0]: step 9\n[rank0]: " + TEXT["shape"]
    rank1 = "2026-11-20 12:00:05 [rank1]: step 9\n[rank1]: " + OOM
    assert ids(f"{rank0}\n{rank1}") == ["oom", "shape"]


def test_an_error_of_several_ranks_is_shown_where_it_was_first() -> None:
    lines = [f"2026-11-20 12:00:{9 - rank:02} [rank{rank}]: {OOM}" for rank in range(8)]
    (match,) = explain_text("\n".join(lines)).matches
    assert (match.rank, match.line, match.count, match.ranks) == (7, 8, 8, tuple(range(8)))
    assert match.timestamp is not None
    assert match.timestamp.text == "2026-11-20 12:00:02"
    assert "8 lines contain this error (ranks 0-7)." in full_text(explain_text("\n".join(lines)))


@pytest.mark.parametrize("other", ["cublas-init", "illegal-address", "launch-failure", "cudnn-init"])
def test_a_device_assert_is_the_cause_of_errors_of_the_dead_context(other: str) -> None:
    for text in (f"{TEXT[other]}\n{TEXT['device-assert']}", f"{TEXT['device-assert']}\n{TEXT[other]}"):
        assert cause(text) == "device-assert"


def test_an_exception_of_another_rank_is_not_the_cause() -> None:
    assert cause(f"[rank0]: {TEXT['cublas-init']}\n[rank1]: {TEXT['device-assert']}") == "cublas-init"


def test_a_device_assert_of_another_rank_is_not_the_cause() -> None:
    asserted = TEXT["device-assert"].splitlines()[0]
    assert cause(f"[rank0]: RuntimeError: {TEXT['cublas-init']}\n[rank1]: {asserted}") == "cublas-init"


def test_a_warning_is_never_the_cause() -> None:
    assert ids(f"{WARNED}\n{OOM}") == ["oom", "fabric-802"]
    explanation = explain_text(WARNED)
    assert (explanation.cause, explanation.is_failure) == (None, False)
    assert explanation.matches[0].is_warning
    below = "cuda/__init__.py:283: UserWarning: \n    Found GPU0 GTX 1080 which is of compute capability (CC) 6.1."
    assert ids(f"{below}\n{OOM}") == ["oom", "arch-warning"]
    later = f"WARNING skipping a batch: {OOM}\n{SHAPE}\n{OOM}"
    assert ids(later) == ["shape", "oom"]


def test_a_line_belongs_to_one_error() -> None:
    echoed = f"Process group watchdog thread terminated with exception: {TEXT['illegal-address']}"
    assert ids(echoed) == ["illegal-address"]
    for error_id, text in WORDINGS[::25]:  # thousands
        assert len(ids(TRACEBACK + text.splitlines()[0])) <= 1, error_id


def test_several_errors_in_a_line_are_listed_from_left_to_right() -> None:
    error = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (24x2 and 12x5)"
    assert ids(f"{error} an illegal instruction was encountered") == ["shape", "illegal-instruction"]
    assert ids(f"an illegal instruction was encountered {error}") == ["illegal-instruction", "shape"]
    log = f"{error} an illegal instruction was encountered, again: {error}, an illegal instruction was encountered\n"
    assert [(match.error.id, match.count) for match in explain_text(log * 3).matches] == [
        ("shape", 3),
        ("illegal-instruction", 3),
    ]


def test_several_xids_in_a_line_are_all_recognized() -> None:
    text = " ".join(f"NVRM: Xid (PCI:0000:17:00): {number}, pid=1234, name=python, ESR" for number in (79, 13, 79))
    assert ids(text) == ["xid-79", "xid-13"]


def test_an_error_within_a_longer_one_is_not_counted() -> None:
    (match,) = explain_text(OOM).matches
    assert match.error.id == "oom"
    rows = "\n".join(OOM[start : start + 30] for start in range(0, len(OOM), 30))
    assert ids(rows) == ["oom"]


def test_a_missing_space_within_a_line_is_not_a_wrapped_message() -> None:
    assert ids("RuntimeError: CUDA error: unspecified launchfailure\nthe next line") == []


def test_the_text_of_an_error_continues_with_the_next_lines() -> None:
    (block,) = blocks([b"before\nRuntimeError: unspecified launch failure\n  after\nend\n"])
    (hit,) = finder().hits(block)
    assert hit.text == "unspecified launch failureafterend"
    assert hit.line_match.line == "RuntimeError: unspecified launch failure"
    assert hit.line_match.match[0] == "unspecified launch failure"


def test_repeated_errors_are_counted() -> None:
    (match,) = explain_text(f"{TEXT['shape']}\n" * 700).matches  # more lines than those by which blocks overlap
    assert (match.line, match.count, match.ranks) == (1, 700, ())


def test_line_numbers_are_those_of_the_file() -> None:
    text = "\n".join([*noise(9000, 1), "\r1%\r2%", OOM, *noise(90, 2)])
    explanation = explain_text(text)
    assert [match.line for match in explanation.matches] == [9002]
    assert explanation.reading.lines == 9092


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_chunks_may_have_any_size(size: int) -> None:
    data = f"{TRACEBACK}{OOM}\n{TIMEOUT}\n".encode()
    chunks = (data[start : start + size] for start in range(0, len(data), size))
    assert explain(chunks, "the text") == explain_text(data.decode())


# The text


def test_a_wrapped_out_of_memory_message_with_a_prefix_is_read() -> None:
    rows = [OOM[start : start + 60] for start in range(0, len(OOM), 60)]
    match = explain_text("[rank2]: " + "\n".join(rows)).cause
    assert match is not None
    assert match.rank == 2
    assert match.memory_cause is MemoryCause.OTHER_PROCESSES
    assert match.values["asked_bytes"] == 20 << 30
    assert match.values["total_bytes"] == round(79.11 * (1 << 30))


def test_the_order_of_the_sections() -> None:
    assert [section.heading for section in sections(explain_text(f"{OOM}\n{TIMEOUT}"))] == [
        "CUDA out of memory [oom]",
        "Why memory ran out",
        "How to fix it, best first",
        "Continue or restart",
        "Effect of torch.cuda.empty_cache()",
        "More information",
        "Found in",
        "Sources",
        "Also in the log",
    ]


def test_evidence_follows_the_values() -> None:
    explanation = explain_text(OOM)
    with_evidence = replace(explanation.matches[0], evidence={"memory now": "GPU 0 is full"})
    headings = [section.heading for section in sections(replace(explanation, matches=(with_evidence,)))]
    assert headings[2] == "This host now"


@every_error
def test_every_entry_has_sections(error: KnownError) -> None:
    entry = error_sections(error)
    assert entry[0].heading.endswith(f"[{error.id}]")
    assert all(section.blocks for section in entry)
    assert all(block.text for section in entry for block in section.blocks)


def test_control_characters_do_not_reach_the_terminal() -> None:
    text = full_text(explain_text(f"\x9b31m\u202e{TEXT['shape']}\x07"))
    assert text.replace("\n", "").replace("\t", "").isprintable()
    assert not {"\x9b", "\u202e", "\x07"} & set(text)


def test_the_error_in_an_overlong_line_is_shown() -> None:
    match = explain_text("x" * 3000 + " " + TEXT["shape"]).cause
    assert match is not None
    assert match.text.startswith("mat1 and mat2")


def test_the_document_has_the_public_names() -> None:
    document = explanation_document(explain_text(f"2026-11-20 12:00:01 [rank3]: {OOM}\n{TIMEOUT}"))
    assert (document["schema"], document["lines"]) == (1, 2)
    first, second = document["matches"]
    assert (first["id"], first["context"], first["line"], first["rank"]) == ("oom", "alive", 1, 3)
    assert (first["is_cause"], second["is_cause"]) == (True, False)
    assert first["time"] == "2026-11-20 12:00:01"
    assert first["memory_cause"] == "neighbour"
    assert first["figures"]["asked_bytes"] == 20 << 30
    assert set(first["fixes"][0]) == {"text", "code"}
    assert first["evidence"] == {}
    assert second["figures"]["operation"] == "ALLREDUCE"


def test_context_states_are_the_five_public_ones() -> None:
    assert {error.context.value for error in ERRORS.values()} <= {context.value for context in ContextState}
    assert {context.value for context in ContextState} == {"alive", "dead", "reset", "unknown", "n/a"}


def test_the_gpu_that_ran_out_of_memory_is_shown() -> None:
    explanation = explain_text(OOM.replace("GPU 0", "GPU 5"))
    assert explanation.cause is not None
    assert explanation.cause.values["gpu"] == "5"
    assert "GPU\t5" in full_text(explanation)
