"""The sizes in an out-of-memory message in every wording, and the cause that follows from them."""

import random
from dataclasses import replace

import pytest

from gpumon.errors.memory import (
    MemoryCause,
    MemoryMessage,
    cause_sentence,
    memory_cause,
    read_memory_message,
    size_rows,
)

GIB = 1 << 30
MIB = 1 << 20

NEW = (
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 80.00 GiB of which 3.00 GiB is "
    "free. Process 4242 has 40.00 GiB memory in use. Process 17 has 1.00 GiB memory in use. Including non-PyTorch "
    "memory, this process has 36.00 GiB memory in use. 60.00 GiB allowed; Of the allocated memory 30.00 GiB is "
    "allocated by PyTorch, with 1.00 GiB allocated in private pools (e.g., CUDA Graphs), and 3.50 GiB is reserved by "
    "PyTorch but unallocated. "
    "If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
)
READ_NEW = MemoryMessage(
    asked=20 * GIB,
    total=80 * GIB,
    free=3 * GIB,
    own=36 * GIB,
    allowed=60 * GIB,
    allocated=30 * GIB,
    private_pools=GIB,
    unallocated=int(3.5 * GIB),
    others=((4242, 40 * GIB), (17, GIB)),
)
OLD = (
    "CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 8.00 GiB total capacity; 6.00 GiB already allocated; "
    "256.00 MiB free; 7.00 GiB allowed; 6.50 GiB reserved in total by PyTorch) If reserved memory is >> allocated"
)
READ_OLD = MemoryMessage(
    asked=512 * MIB, total=8 * GIB, free=256 * MIB, allowed=7 * GIB, allocated=6 * GIB, unallocated=512 * MIB
)
ASYNC = (
    "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 1.00 GiB\n"
    "Requested               : 20.00 GiB\nDevice limit            : 80.00 GiB\nFree (according to CUDA): 3.00 GiB\n"
    "PyTorch limit (set by user-supplied memory fraction)\n                        : 14.00 GiB"
)
READ_ASYNC = MemoryMessage(asked=20 * GIB, total=80 * GIB, free=3 * GIB, allowed=14 * GIB, allocated=GIB)
FULL = MemoryMessage(asked=8 * GIB, total=80 * GIB, free=GIB, own=79 * GIB, allocated=78 * GIB, unallocated=GIB // 8)
"""A GPU that this process alone has filled."""


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (NEW, READ_NEW),
        (NEW.replace("capacity", "capacty"), READ_NEW),
        (NEW.replace("has 36.00", "has 17179869184.00"), replace(READ_NEW, own=None)),
        (OLD, READ_OLD),
        (OLD.replace("6.50 GiB reserved in total by PyTorch", "512.00 MiB cached"), READ_OLD),
        (ASYNC, READ_ASYNC),
    ],
)
def test_every_wording_is_read(text: str, read: MemoryMessage) -> None:
    assert read_memory_message(text) == read


@pytest.mark.parametrize(("text", "read"), [(NEW, READ_NEW), (OLD, READ_OLD), (ASYNC, READ_ASYNC)])
@pytest.mark.parametrize("width", range(20, 131, 11))
def test_a_wrapped_message_is_read(text: str, read: MemoryMessage, width: int) -> None:
    joined = "".join(text[start : start + width].strip() for start in range(0, len(text), width))
    assert read_memory_message(joined) == read


def test_a_truncated_message_gives_its_remaining_sizes() -> None:
    for end in range(len("CUDA out of memory. Tried to allocate 20.00 GiB"), len(NEW)):
        message = read_memory_message(NEW[:end])
        assert message is not None
        assert message.asked == 20 * GIB
        for name, value in message.sizes().items():
            assert name == "other_processes_bytes" or READ_NEW.sizes()[name] == value


@pytest.mark.parametrize("text", ["", "out of memory", "CUDA out of memory.", "CUDA error: out of memory", "x" + NEW])
def test_another_text_has_no_sizes(text: str) -> None:
    assert read_memory_message(text) is None


def test_damaged_messages_are_read() -> None:
    rng = random.Random(1)
    for _ in range(300):
        torn = "".join(character for character in NEW if rng.random() > 0.05)
        read_memory_message(torn)


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (READ_NEW, MemoryCause.OTHER_PROCESSES),
        (READ_OLD, MemoryCause.FRAGMENTATION),
        (READ_ASYNC, MemoryCause.CAP),
        (FULL, MemoryCause.TOO_BIG),
        (replace(FULL, asked=100 * GIB), MemoryCause.TOO_BIG),
        (replace(FULL, asked=20 * MIB), MemoryCause.LEAK),
        (replace(FULL, allowed=80 * GIB), MemoryCause.TOO_BIG),
        (replace(FULL, allowed=10 * GIB, allocated=9 * GIB, free=70 * GIB, asked=2 * GIB), MemoryCause.CAP),
        (replace(FULL, allocated=60 * GIB, unallocated=18 * GIB), MemoryCause.FRAGMENTATION),
        (replace(FULL, asked=2 * MIB, free=MIB, unallocated=60 * MIB), MemoryCause.LEAK),
        (replace(FULL, own=20 * GIB, allocated=19 * GIB), MemoryCause.OTHER_PROCESSES),
        (replace(FULL, asked=20 * MIB, allocated=GIB), MemoryCause.UNKNOWN),
        (replace(FULL, asked=20 * MIB, allocated=100 * GIB), MemoryCause.TOO_BIG),
        (MemoryMessage(asked=GIB), MemoryCause.UNKNOWN),
        (MemoryMessage(asked=GIB, allowed=2 * GIB, allocated=2 * GIB), MemoryCause.CAP),
    ],
)
def test_the_cause(message: MemoryMessage, cause: MemoryCause) -> None:
    assert memory_cause(message) is cause
    assert "–" not in cause_sentence(cause, message) or message.free is None


def test_a_step_that_is_slightly_too_big_is_not_said_to_exceed_the_gpu() -> None:
    own = 11 * GIB + 512 * MIB
    message = MemoryMessage(5 * GIB, total=16 * GIB, free=4 * GIB, own=own, allocated=10 * GIB, unallocated=GIB)
    assert memory_cause(message) is MemoryCause.TOO_BIG
    sentence = cause_sentence(MemoryCause.TOO_BIG, message)
    assert "Slightly too big" in sentence
    assert "1.00 GiB more than was free. The 512 MiB that other processes hold" in sentence
    beyond = cause_sentence(MemoryCause.TOO_BIG, replace(message, asked=7 * GIB))
    assert "the job needs more than the GPU's 16.0 GiB" in beyond


def test_in_a_container_the_process_is_listed_as_another_one() -> None:
    alone = read_memory_message(
        "CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 80.00 GiB of which 1.00 GiB is"
        " free. Process 4242 has 79.00 GiB memory in use. Of the allocated memory 78.00 GiB is allocated by PyTorch,"
        " and 128.00 MiB is reserved by PyTorch but unallocated."
    )
    assert alone is not None
    assert (alone.own, alone.others, alone.foreign) == (79 * GIB, (), 0)
    assert memory_cause(alone) is MemoryCause.TOO_BIG


def test_rows_of_the_known_sizes() -> None:
    assert size_rows(MemoryMessage(asked=GIB).sizes()) == [("requested", "1.00 GiB")]
    assert ("held by other processes", "41.0 GiB") in size_rows(READ_NEW.sizes())


def test_a_message_truncated_before_the_sizes_of_the_process_has_no_cause() -> None:
    cut = (
        "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 5 has a total capacity of 79.11 GiB of which 3.12 GiB is"
        " free."
    )
    message = read_memory_message(cut)
    assert message is not None
    assert memory_cause(message) is MemoryCause.UNKNOWN


@pytest.mark.parametrize(
    ("free", "first", "second", "own", "others"),
    [
        ("508.00 MiB", "494.00 MiB", "78.33 GiB", 78.33, ((62, 494 * MIB),)),
        ("1.00 GiB", "4.00 GiB", "74.30 GiB", None, ((62, 4 * GIB), (113, round(74.3 * GIB)))),
        ("1.00 GiB", "78.90 GiB", "74.90 GiB", 74.9, ((62, round(78.9 * GIB)),)),
    ],
)
def test_the_process_under_another_pid_is_not_another_process(
    free: str, first: str, second: str, own: float | None, others: tuple[tuple[int, int], ...]
) -> None:
    message = read_memory_message(
        f"CUDA out of memory. Tried to allocate 594.00 MiB. GPU 0 has a total capacity of 79.33 GiB of which {free} is"
        f" free. Process 62 has {first} memory in use. Process 113 has {second} memory in use. Of the allocated memory"
        " 74.24 GiB is allocated by PyTorch, and 185.89 MiB is reserved by PyTorch but unallocated."
    )
    assert message is not None
    assert message.own == (None if own is None else round(own * GIB))
    assert message.others == others


def test_a_listed_process_that_leaves_room_for_this_one_is_another_one() -> None:
    message = read_memory_message(
        "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 80.00 GiB of which 10.00 GiB is"
        " free. Process 62 has 50.00 GiB memory in use. Of the allocated memory 18.00 GiB is allocated by PyTorch, and"
        " 1.00 GiB is reserved by PyTorch but unallocated."
    )
    assert message is not None
    assert message.own is None
    assert message.others == ((62, 50 * GIB),)
    assert memory_cause(message) is MemoryCause.OTHER_PROCESSES
