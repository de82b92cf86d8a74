"""How a log is read: runs, ranks, what a run survived, and the root of what ended it."""

from pathlib import Path
from typing import Final

import pytest

from gpumon.errors.advice import own_words
from gpumon.errors.answer import answer_of
from gpumon.errors.cause import Cause, Confidence, cause_of
from gpumon.errors.explain import explain_text
from gpumon.errors.reading import FailureKind, LogReading
from tests.errors.whole_logs import answer, read_log

_OOM: Final = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of"
    " which 1.00 GiB is free. Of the allocated memory 70.00 GiB is allocated by PyTorch, and 1.50 GiB is reserved by"
    " PyTorch but unallocated."
)


def traceback(error: str, *, code: str = "loss = model(batch)", function: str = "<module>", prefix: str = "") -> str:
    lines = (
        "Traceback (most recent call last):",
        f'  File "/home/user/train.py", line 12, in {function}',
        f"    {code}",
        error,
    )
    return "".join(f"{prefix}{line}\n" for line in lines)


def steps(first: int, last: int) -> str:
    return "".join(f"step {number} loss {3 - number / 1000:.3f}\n" for number in range(first, last))


def cause_in(text: str) -> Cause:
    cause = cause_of(read_log(text))
    assert cause is not None, "the log is healthy"
    return cause


def root_text(text: str) -> str:
    return cause_in(text).root.text


def test_short_logs_are_read_as_people_read_them() -> None:
    logs = (Path(__file__).parent / "readings.txt").read_text().split("\n=== ")[1:]
    for expected, _, text in (log.partition("\n") for log in logs):
        reading = read_log(text)
        given = answer_of(reading, cause_of(reading), "log")
        assert expected in f"{given.headline}\n{given.advice}\n{given.because}\n{given.printed}", (expected, given)


def test_the_last_exception_is_the_end() -> None:
    cause = cause_in(steps(1, 50) + traceback("KeyError: 'labels'", code="y = batch['labels']"))
    assert cause.root.text == "KeyError: 'labels'"
    assert cause.root.raised is not None
    assert cause.root.raised.frame is not None
    assert cause.root.raised.frame.code == "y = batch['labels']"
    assert cause.confidence is Confidence.UNKNOWN


def test_progress_after_a_caught_exception_proves_that_it_did_not_end_the_run() -> None:
    text = steps(1, 5) + "WARNING retrying\n" + traceback(_OOM, function="train_step") + steps(5, 9)
    assert cause_of(read_log(text)) is None


def test_what_a_program_printed_before_it_ended_may_follow_its_traceback() -> None:
    assert root_text(traceback("ValueError: bad") + steps(1, 40)) == "ValueError: bad"


def test_long_progress_after_a_traceback_is_another_run() -> None:
    text = traceback("ValueError: bad") + steps(1, 2000) + traceback("KeyError: 'x'")
    assert root_text(text) == "KeyError: 'x'"


def test_an_exception_long_after_another_one_of_the_same_process_is_of_another_run() -> None:
    between = "".join(f"loading shard number {number} of the data set\n" for number in range(300))
    text = traceback("ValueError: first") + between + traceback("IndexError: second")
    assert root_text(text) == "IndexError: second"
    assert len(read_log(text).runs) == 2
    near = traceback("ValueError: first") + between[:2000] + "\n" + traceback("IndexError: second", function="main")
    assert root_text(near).startswith("ValueError: first")


def test_each_script_that_an_exception_ended_is_a_run() -> None:
    one, other = traceback("ModuleNotFoundError: No module named 'tabulate'"), traceback("KeyError: 'x'")
    assert root_text(one + other) == "KeyError: 'x'"
    assert len(read_log(one + other + one).runs) == 3
    report = traceback("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", function="main")
    assert root_text(one + other + report).startswith("ModuleNotFoundError"), "these are ranks"


def test_a_restart_begins_a_run() -> None:
    reading = read_log(
        steps(1, 9)
        + traceback("ValueError: first")
        + "[elastic] Restarting worker group\n"
        + steps(1, 9)
        + traceback("KeyError: 'b'")
    )
    assert len(reading.runs) == 2
    cause = cause_of(reading)
    assert cause is not None
    assert cause.root.text == "KeyError: 'b'"
    assert answer_of(reading, cause, "train.log").headline.startswith("train.log: run 2 of 2 ended at line ")


@pytest.mark.parametrize(
    "start", ["(env) me@host:~$ python train.py\n", "usage: train.py [-h]\n", "loading the corpus\nusing seed 42\n"]
)
def test_a_program_that_is_started_again_begins_a_run(start: str) -> None:
    begin = "loading the corpus\nusing seed 1\n"
    text = begin + traceback("ValueError: first") + start + steps(1, 5) + traceback("KeyError: 'x'")
    assert root_text(text) == "KeyError: 'x'"
    assert len(read_log(text).runs) == 2


def test_a_script_that_is_not_found_is_not_what_another_program_failed_for() -> None:
    text = "python: can't open file '/home/user/serve.py': [Errno 2] No such file or directory\n"
    assert root_text(text + traceback("KeyError: 'x'", function="convert")) == "KeyError: 'x'"
    assert "can't open file" in root_text(text)


def test_a_message_keeps_its_lines() -> None:
    cause = cause_in(traceback("ValueError: bad size\n  found 3\n  wanted 4"))
    assert cause.root.raised is not None
    assert (cause.root.first_text, cause.root.raised.message) == ("ValueError: bad size", "bad size\nfound 3\nwanted 4")


def test_a_program_that_logged_its_exception_begins_a_run_too() -> None:
    begin = "loading the corpus\nreading the settings\n"
    first, second = (traceback(text, function="submit") for text in ("OSError: no source", "KeyError: 'x'"))
    assert root_text(f"{begin}ERROR: failed\n{first}{begin}ERROR: failed\n{second}") == "KeyError: 'x'"


def test_a_run_that_succeeds_after_a_restart_is_healthy() -> None:
    text = traceback("ValueError: first") + "Restarting worker group\n" + steps(1, 9) + "Training completed\n"
    assert cause_of(read_log(text)) is None


def test_the_rank_that_failed_first_is_the_root() -> None:
    text = (
        traceback("IndexError: list index out of range", prefix="[rank2]: ")
        + "[rank0]:[E ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600013 milliseconds\n"
    )
    cause = cause_in(text)
    assert (cause.root.rank, cause.root.text) == (2, "IndexError: list index out of range")


@pytest.mark.parametrize(
    ("joint", "root"),
    [
        ("The above exception was the direct cause of the following exception:", "OSError: disk"),
        ("During handling of the above exception, another exception occurred:", "OSError: disk"),
    ],
)
def test_a_chain_goes_back_to_its_first_link(joint: str, root: str) -> None:
    assert root_text(f"{traceback('OSError: disk')}\n{joint}\n\n{traceback('RuntimeError: cannot save')}") == root


def test_what_is_raised_while_a_probe_is_handled_says_more() -> None:
    joint = "\nDuring handling of the above exception, another exception occurred:\n\n"
    text = traceback("KeyError: 'a'") + joint + traceback("ValueError: unknown option a")
    assert root_text(text) == "ValueError: unknown option a"


def test_what_a_library_handled_while_a_signal_was_reported_is_no_cause() -> None:
    joint = "\nDuring handling of the above exception, another exception occurred:\n\n"
    signal = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 47 got signal: 1"
    probe = traceback("KeyError: 30", function="isEnabledFor").replace(
        "/home/user/train.py", "/usr/lib/python3.8/log.py"
    )
    assert root_text(joint.join((traceback(signal), probe, traceback(signal)))) == signal


def test_an_exception_without_a_message_says_no_more_than_the_one_before() -> None:
    joint = "\nDuring handling of the above exception, another exception occurred:\n\n"
    text = traceback("ModuleNotFoundError: No module named 'core._math'") + joint + traceback("ImportError: ")
    assert root_text(text) == "ModuleNotFoundError: No module named 'core._math'"
    assert root_text(traceback("AssertionError") + "job.sh: line 3: 8f: command not found\n") == "AssertionError"


def test_the_error_of_a_worker_is_the_one_that_it_raised() -> None:
    text = (
        traceback("ValueError: Caught ValueError in DataLoader worker process 0.").removesuffix("\n")
        + "\nOriginal "
        + traceback("ValueError: image 7 is empty", code="return load(path)", function="__getitem__")
    )
    assert root_text(text) == "ValueError: image 7 is empty"


def test_a_signal_is_the_end_if_nothing_else_is() -> None:
    cause = cause_in(steps(1, 20) + "Segmentation fault (core dumped)\n")
    assert cause.root.match is not None or cause.root.kind is FailureKind.ENDED


@pytest.mark.parametrize(("code", "meaning"), [(137, "SIGKILL"), (139, "SIGSEGV"), (134, "SIGABRT"), (143, "SIGTERM")])
def test_an_exit_code_alone_is_explained(code: int, meaning: str) -> None:
    given = answer(f"{steps(1, 20)}Process finished with exit code {code}\n")
    assert meaning in given.headline
    assert given.do is not None


def test_a_command_after_a_failure_is_no_run() -> None:
    text = traceback("ValueError: first") + "me@host:~$ python -m pip list\nnumpy 1.26\n"
    assert root_text(text) == "ValueError: first"


def test_timestamps_of_any_form_are_no_part_of_an_error() -> None:
    for stamp in (
        *("2026-11-20 12:00:01,123 - ", "[Nov 20 12:00:01] ", "[11/20/2026, 12:00:01] ", "2026-11-20 12:00:01.123 | "),
        *("(2026-11-20 12:00:01) ", "[1700000000.123] ", "[2026-11-20 12:00:01,123][root][ERROR] - ", "12:00:01 > "),
        *("[2026-03-04 10:20:30] ", "[04/Mar/2026 10:20:30] ", "03-04 10:20:30 | "),
    ):
        assert root_text(f"starting\n{stamp}ValueError: bad\n") == "ValueError: bad", stamp
        assert root_text(traceback("ValueError: bad", prefix=stamp)) == "ValueError: bad", stamp
        usage = f"{stamp}usage: train.py [-h]\n{stamp}train.py: error: unrecognized arguments: --foo\n"
        assert root_text(usage) == "train.py: error: unrecognized arguments: --foo", stamp


def test_ranks_are_compared() -> None:
    late = (
        "[rank3]:[E ProcessGroupNCCL.cpp:700] [Rank 3] Timeout at NCCL work: 4181, last enqueued NCCL work: 4181,"
        " last completed NCCL work: 4181.\n"
    )
    timeout = (
        "[rank{0}]:[E ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL("
        "SeqNum=4182, OpType={1}, Timeout(ms)=600000) ran for 600013 milliseconds before timing out.\n"
    )
    reduced = [timeout.format(rank, "ALLREDUCE, NumelIn=64, NumelOut=64") for rank in range(3)]
    assert "rank 3 is 1 collective behind (ALLREDUCE #4,182)" in answer("".join(reduced) + late).headline
    gathered = [timeout.format(rank, "ALLGATHER, NumelIn=1, NumelOut=4") for rank in (1, 2, 3)]
    ended = f"[ERROR] [launch.py:321] {['python'] * 200} exits with return code = -6\n"
    assert "rank 0 does not report ALLGATHER #4,182" in answer("".join(gathered) + ended).headline


def test_the_place_is_the_line_that_was_compiled() -> None:
    where = "\nfrom user code:\n   File '/home/user/net.py', line 5, in forward\n    return torch.cat([x, y])".replace(
        "'", '"'
    )
    error = "torch._dynamo.exc.TorchRuntimeError: Failed running call_function <built-in method cat>:"
    assert answer(traceback(error, code="net(x)") + where).place.startswith("user/net.py:5 in forward")
    assert answer(traceback(error, code="net(x)")).place.endswith("net(x)")


def test_the_first_thing_to_do_about_an_exception_without_an_entry() -> None:
    rows = Path(__file__).with_name("first_steps.txt").read_text().splitlines()
    for message, code, advice in (row.split(" || ") for row in rows if not row.startswith("#")):
        given = answer(traceback(message, code=code)).do
        assert given is not None
        assert advice in f"{given.text} {given.code}", (message, code)


@pytest.mark.parametrize(
    ("message", "quote"),
    [
        (
            "mesh is missing. Please pass `mesh_device` to the constructor.",
            "Please pass `mesh_device` to the constructor.",
        ),
        ("CUDA error\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1", ""),
        ("value is 3", ""),
        (
            "no such file. If it is remote, set a token. Otherwise, make sure that 'a' is a file",
            "Otherwise, make sure that 'a' is a file",
        ),
        ("inconsistent use of tabs", ""),
        ("found no algorithm to run a convolution, address already in use", ""),
        ("Did you run some functions before?", ""),
    ],
)
def test_the_words_of_a_message_are_the_advice(message: str, quote: str) -> None:
    assert own_words(message) == quote


def test_the_work_of_a_large_log_is_bounded() -> None:
    reading = read_log("".join(f"ERROR request {number} failed\n" for number in range(50_000)) + steps(1, 3))
    assert isinstance(reading, LogReading)
    assert len(reading.open) == 0
    assert len(reading.notices) < 1000
    xid = "NVRM: Xid (PCI:0000:01:00): {}, pid={}\n"
    flood = "".join(xid.format(79 if number == 700 else 13, 10_000 + number) for number in range(1500))
    assert {"xid-13", "xid-79"} == {match.error.id for match in explain_text(flood).matches}


def test_no_command_installs_a_package_that_only_the_log_names() -> None:
    given = {
        name: answer(traceback(f"RuntimeError: run `pip install {name}`")).do for name in ("wandb[x]", "evil-name")
    }
    assert [step and step.code for step in given.values()] == ["python -m pip install -U 'wandb[x]'", ""]


def test_a_notice_is_a_hint_only_with_evidence() -> None:
    warned = "[W socket.cpp:601] [c10d] The IPv6 network addresses of (node1, 29500) cannot be retrieved\n"
    other = answer(warned + traceback("ValueError: bad"))
    assert other.otherwise is None or "may be the reason" not in other.otherwise.text


def test_the_process_that_holds_the_memory_is_named() -> None:
    held = "Process 4711 has 40.00 GiB memory in use. "
    text = _OOM.replace("79.11 GiB", "120.00 GiB").replace("Of the", f"{held}Of the")
    assert "PID 4711 holds 40.0 GiB" in answer(traceback(text)).because
    text = text.replace(held, f"Process 7 has 4.00 GiB memory in use. {held}")
    assert "other processes 44.0 GiB (most: PID 4711)" in answer(traceback(text)).because
