"""Which of several errors is the cause, and what is told of it."""

from dataclasses import replace

import pytest

from gpumon.diagnosis import explain as explain_module
from gpumon.diagnosis.catalogue import BY_ID, ERRORS
from gpumon.diagnosis.documents import explanation_document
from gpumon.diagnosis.explain import explain, explain_text
from gpumon.diagnosis.explanation import Explanation, Match
from gpumon.diagnosis.known import Context, KnownError
from gpumon.diagnosis.match import Hit
from gpumon.diagnosis.memory_cause import MemoryCause
from gpumon.diagnosis.narrative import BlockKind, error_sections, sections
from gpumon.diagnosis.scan import Block
from tests.diagnosis.corpus import noise
from tests.diagnosis.texts import WORDINGS

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
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 12, in <module>\n    main()\n'


def found(text: str) -> list[str]:
    return [match.error.id for match in explain_text(text).matches]


def cause(text: str) -> str | None:
    match = explain_text(text).cause
    return match.error.id if match else None


def told(explanation: Explanation) -> str:
    return "\n".join([block.text for section in sections(explanation) for block in section.blocks])


# Which is the cause


def test_nothing_is_no_cause() -> None:
    assert explain_text("").matches == ()
    assert explain_text("").lines == 0
    assert explain_text("all is well\n").lines == 1
    assert sections(explain_text("all is well")) == []


def test_the_first_in_the_file_is_the_cause_where_no_times_are() -> None:
    assert found(f"{TEXT['shape']}\n{OOM}") == ["shape", "oom"]
    assert found(f"{OOM}\n{TEXT['shape']}") == ["oom", "shape"]


def test_the_timeout_that_others_only_hear_of_is_not_the_cause() -> None:
    assert found(f"[rank0]: {TIMEOUT}\n[rank3]: {OOM}") == ["oom", "nccl-timeout"]
    assert found(TIMEOUT) == ["nccl-timeout"]


@pytest.mark.parametrize(
    ("early", "late"),
    [
        ("2026-11-20 12:00:01 ", "2026-11-20 12:00:02 "),
        ("[2026-11-20 12:00:01,100] ", "2026-11-20T12:00:01.200Z "),
        ("Nov 20 12:00:01 node1 ", "Nov 20 12:00:02 node2 "),
        ("E1120 12:00:01.1 1 a.cpp:1] ", "E1121 00:00:00.0 1 a.cpp:1] "),
        ("12:00:01 ", "12:00:02 "),
        ("23:59:59 ", "00:00:01 "),
        ("[12.000001] ", "[13.000001] "),
    ],
)
def test_the_earliest_rank_has_the_cause_wherever_it_stands(early: str, late: str) -> None:
    assert found(f"{late}[rank0]: {TEXT['shape']}\n{early}[rank1]: {OOM}") == ["oom", "shape"]


def test_times_of_two_kinds_are_not_compared() -> None:
    assert found(f"12:00:02 {OOM}\n2026-11-20 12:00:01 {TEXT['shape']}") == ["oom", "shape"]


def test_a_traceback_has_the_time_of_its_rank_above_it() -> None:
    rank0 = "2026-11-20 12:00:09 [rank0]: step 9\n[rank0]: " + TEXT["shape"]
    rank1 = "2026-11-20 12:00:05 [rank1]: step 9\n[rank1]: " + OOM
    assert found(f"{rank0}\n{rank1}") == ["oom", "shape"]


def test_one_error_of_several_ranks_is_told_where_it_was_first() -> None:
    lines = [f"2026-11-20 12:00:{9 - rank:02} [rank{rank}]: {OOM}" for rank in range(8)]
    (match,) = explain_text("\n".join(lines)).matches
    assert (match.rank, match.line, match.count, match.ranks) == (7, 8, 8, tuple(range(8)))
    assert match.moment is not None
    assert match.moment.text == "2026-11-20 12:00:02"
    assert "8 lines say so, on ranks 0-7." in told(explain_text("\n".join(lines)))


@pytest.mark.parametrize("other", ["cublas-init", "illegal-address", "launch-failure", "cudnn-init"])
def test_a_device_assert_is_the_cause_of_what_the_dead_context_says(other: str) -> None:
    for text in (f"{TEXT[other]}\n{TEXT['device-assert']}", f"{TEXT['device-assert']}\n{TEXT[other]}"):
        assert cause(text) == "device-assert"


def test_a_device_assert_of_another_rank_is_not() -> None:
    assert cause(f"[rank0]: {TEXT['cublas-init']}\n[rank1]: {TEXT['device-assert']}") == "cublas-init"


def test_a_warning_is_the_cause_only_if_nothing_failed() -> None:
    assert found(f"{WARNED}\n{OOM}") == ["oom", "fabric-802"]
    match = explain_text(WARNED).cause
    assert match is not None
    assert match.is_warning
    below = "cuda/__init__.py:283: UserWarning: \n    Found GPU0 GTX 1080 which is of compute capability (CC) 6.1."
    assert found(f"{below}\n{OOM}") == ["oom", "arch-warning"]
    later = f"WARNING skipping a batch: {OOM}\n{TEXT['shape']}\n{OOM}"
    assert found(later) == ["shape", "oom"]
    assert not explain_text(later).matches[1].is_warning


def test_a_line_belongs_to_one_error() -> None:
    echoed = f"Process group watchdog thread terminated with exception: {TEXT['illegal-address']}"
    assert found(echoed) == ["illegal-address"]
    for error_id, text in WORDINGS:
        assert len(found(TRACEBACK + text.splitlines()[0])) <= 1, error_id


def test_repeats_are_counted_and_kept_once() -> None:
    (match,) = explain_text(f"{TEXT['shape']}\n" * 5000).matches
    assert (match.line, match.count, match.ranks) == (1, 5000, ())


def test_the_number_of_a_line_is_that_of_the_file() -> None:
    text = "\n".join([*noise(9000, 1), "\r1%\r2%", OOM, *noise(9000, 2)])
    (match,) = explain_text(text).matches
    assert match.line == 9002
    assert explain_text(text).lines == 18_002


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_pieces_may_have_any_size(size: int) -> None:
    data = f"{TRACEBACK}{OOM}\n{TIMEOUT}\n".encode()
    pieces = (data[start : start + size] for start in range(0, len(data), size))
    assert explain(pieces) == explain_text(data.decode())


# What is told


def test_an_out_of_memory_text_is_read_though_it_is_wrapped_behind_its_first_prefix() -> None:
    rows = [OOM[start : start + 60] for start in range(0, len(OOM), 60)]
    match = explain_text("[rank2]: " + "\n".join(rows)).cause
    assert match is not None
    assert match.rank == 2
    assert match.memory_cause is MemoryCause.NEIGHBOUR
    assert match.figures["asked_bytes"] == 20 << 30
    assert match.figures["total_bytes"] == round(79.11 * (1 << 30))


def test_sections_come_in_the_order_in_which_they_are_asked_for() -> None:
    assert [section.heading for section in sections(explain_text(f"{OOM}\n{TIMEOUT}"))] == [
        "CUDA out of memory [oom]",
        "What the numbers say",
        "Go on or start again",
        "What mends it, best first",
        "What torch.cuda.empty_cache() does",
        "To see more",
        "Source",
        "Also in the log",
    ]


def test_evidence_stands_beside_the_figures() -> None:
    explanation = explain_text(OOM)
    with_evidence = replace(explanation.matches[0], evidence={"memory now": "GPU 0 is full"})
    headings = [section.heading for section in sections(replace(explanation, matches=(with_evidence,)))]
    assert headings[2] == "What this machine says now"


@pytest.mark.parametrize("error", ERRORS, ids=[error.id for error in ERRORS])
def test_every_entry_can_be_told(error: KnownError) -> None:
    entry = error_sections(error)
    assert entry[0].heading.endswith(f"[{error.id}]")
    assert all(section.blocks for section in entry)
    assert all(block.text for section in entry for block in section.blocks)


def test_a_message_from_outside_cannot_reach_the_terminal() -> None:
    text = told(explain_text(f"\x9b31m\u202e{TEXT['shape']}\x07"))
    assert text.replace("\n", "").replace("\t", "").isprintable()
    assert not {"\x9b", "\u202e", "\x07"} & set(text)


def test_of_an_overlong_line_the_error_is_shown() -> None:
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


def test_contexts_are_of_the_five_words() -> None:
    assert {error.context.value for error in ERRORS} <= {context.value for context in Context}
    assert {context.value for context in Context} == {"alive", "dead", "reset", "unknown", "n/a"}


def test_ids_name_one_error_each() -> None:
    assert len(BY_ID) == len(ERRORS)
    assert {"oom", "device-assert", "nccl-timeout", "xid-79"} <= set(BY_ID)


def test_blocks_to_copy_are_marked() -> None:
    kinds = {block.kind for section in sections(explain_text(OOM)) for block in section.blocks}
    assert kinds == {BlockKind.PARAGRAPH, BlockKind.QUOTE, BlockKind.ROW, BlockKind.ITEM, BlockKind.CODE}


def test_a_long_log_of_warnings_is_not_looked_into_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    match_of = explain_module._match

    def counted(block: Block, hit: Hit) -> Match:
        looked.append(hit.place)
        return match_of(block, hit)

    monkeypatch.setattr(explain_module, "_match", counted)
    text = "\n".join(f"WARNING batch {number} skipped: {OOM}" for number in range(200))
    (match,) = explain_text(f"{text}\n{OOM}\n").matches
    assert (match.count, match.is_warning, match.line) == (201, False, 201)
    assert len(looked) == 2


def test_what_a_progress_bar_has_left_is_no_time_of_day() -> None:
    bars = ("50%|# | 5/10 [1:02:03<10:12:13, 66.8s/it]", "51%|# | 5/10 [1:02:04<10:01:02, 66.7s/it]")
    assert cause(f"{bars[0]}\n{OOM}\n{bars[1]}\n{TEXT['shape']}\n") == "oom"


def test_a_new_year_may_lie_between() -> None:
    log = f"Dec 31 23:59:59 node1 {OOM}\nJan  1 00:00:03 node1 {TEXT['shape']}\n"
    assert cause(log) == "oom"


def test_the_gpu_that_ran_out_is_told() -> None:
    explanation = explain_text(OOM.replace("GPU 0", "GPU 5"))
    assert explanation.cause is not None
    assert explanation.cause.figures["gpu"] == "5"
    assert "GPU\t5" in told(explanation)
