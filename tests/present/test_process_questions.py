"""The dialog that empties a process's cache: what it promises, and what it reports while it waits."""

from gpumon.core.problems import Problem, ProblemCode
from gpumon.operations.gpu_processes import Owner
from gpumon.present.process_questions import cache_question, failed_text, requested_text
from tests import builders
from tests.ui.probing import GIB, PID, statistics

OWNER = Owner(PID, builders.process(PID, memory_bytes=61 * GIB))


def rows(**changes: int | None) -> list[str]:
    return [line.strip() for line in cache_question(OWNER, statistics(**changes), "python train.py").splitlines()]


def test_the_question_lists_what_is_released_and_what_stays_and_why() -> None:
    text = rows()
    assert text[:2] == [f"Have PID {PID} call torch.cuda.empty_cache()?", "python train.py"]
    assert text[3:8] == [
        "12.5 GiB  released: cached, in segments without a tensor",
        "43.0 GiB  stays: held by live tensors",
        "4.00 GiB  stays: free, but in segments that are partly in use",
        "512 MiB  stays: freed, waiting for stream",
        "1.00 GiB  stays: the CUDA context and libraries",
    ]


def test_nothing_to_release_and_an_unknown_amount_are_stated() -> None:
    full = statistics(reserved_bytes=44 * GIB, active_bytes=44 * GIB, inactive_split_bytes=0)
    assert "nothing  released: every segment holds a tensor" in cache_question(OWNER, full, "")
    unknown = rows(inactive_split_bytes=None)
    assert f"up to {60 - 43.5:.1f} GiB  released: this allocator does not report how much of it" in unknown
    assert "up to 17.0 GiB" in " ".join(rows(active_bytes=None))


def test_a_missing_response_is_not_a_refusal() -> None:
    late = Problem(ProblemCode.UNRESPONSIVE, "No response within 600 s.")
    assert failed_text(late) == "No result yet. No response within 600 s.\n"
    assert failed_text(Problem(ProblemCode.UNKNOWN, "It failed.")) == "The cache was not emptied. It failed.\n"
    assert failed_text(None) == "The cache was not emptied. \n"
    assert requested_text(OWNER, 1.0) == f"PID {PID}: empty_cache() requested. Waiting for the response.\n"
