"""An error that the catalogue does not have: the last exception, its frame, its kind, and the lines around it."""

import json

import pytest

from gpumon.errors.documents import explanation_document
from gpumon.errors.explain import explain_text
from gpumon.errors.narrative import kind_of, sections
from gpumon.errors.reading import LogFailure
from tests.errors.corpus import noise
from tests.errors.texts import samples_of

DESTROY = samples_of("nccl-destroy")[0]
TRACEBACK = """\
Traceback (most recent call last):
  File "/home/user/train.py", line 41, in <module>
    main()
  File "/home/user/data.py", line 12, in labels
    return batch["labels"]
           ~~~~~^^^^^^^^^^
  File "/venv/lib/python3.11/site-packages/datasets/arrow.py", line 7, in __getitem__
    raise KeyError(key)
KeyError: 'labels'
"""
LAUNCHER = """\
Traceback (most recent call last):
  File "/usr/local/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
train.py FAILED
"""


def unknown(text: str) -> LogFailure:
    error = explain_text(text).unknown
    assert error is not None
    return error


def headings(text: str) -> list[str]:
    return [section.heading for section in sections(explain_text(text))]


def shown(text: str) -> str:
    return "\n".join(block.text for section in sections(explain_text(text)) for block in section.blocks)


@pytest.mark.parametrize("prefix", ["", "[rank3]: ", "2026-11-20 12:00:01,123 ERROR "])
def test_the_last_exception_has_its_frame_in_the_users_code(prefix: str) -> None:
    lines = [*noise(50, 1), *(prefix + line for line in TRACEBACK.splitlines())]
    error = unknown("\n".join(lines))
    assert (error.name, error.text, kind_of(error)) == ("KeyError", "KeyError: 'labels'", "python")
    assert error.line == 50 + 9
    assert error.frame is not None
    assert (error.frame.file, error.frame.line, error.frame.function) == ("/home/user/data.py", 12, "labels")
    assert (error.frame.code, error.frame.is_own) == ('return batch["labels"]', True)


def test_without_own_code_the_innermost_frame_is_shown() -> None:
    text = TRACEBACK.replace("/home/user/", "/venv/lib/python3.11/site-packages/tool/")
    frame = unknown(text).frame
    assert frame is not None
    assert (frame.file.rsplit("/", 1)[1], frame.is_own) == ("arrow.py", False)
    assert "No frame is in your code" in shown(text)


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        ("ValueError: too many values to unpack", "ValueError", "python"),
        ("RuntimeError: cuSPARSELt is not initialized on this GPU", "RuntimeError", "cuda"),
        ("torch.distributed.DistStoreError: a new wording of the store", "torch.distributed.DistStoreError", "nccl"),
        ("RuntimeError: hipSOLVER: a new wording", "RuntimeError", "rocm"),
        ("OSError: [Errno 6] No such device or address: 'a.bin'", "OSError", "system"),
        ("bash: line 1: 4242 Illegal instruction     python train.py", "Error in the log", "system"),
        ("terminate called after throwing an instance of 'c10::Error'\n  what():  of CUDA\n", "c10::Error", "cuda"),
        (TRACEBACK.replace("KeyError: 'labels'", "queue.Empty"), "queue.Empty", "python"),
        ("2026-11-20 12:00:01 ERROR trainer.py:88 the step has failed", "Error in the log", "program"),
        ('time=2026-11-20T12:00:01Z level=ERROR msg="the step has failed"', "Error in the log", "program"),
    ],
)  # fmt: skip
def test_what_kind_of_thing_an_error_is(text: str, name: str, kind: str) -> None:
    error = unknown(f"step 1\n{text}\n")
    assert (error.name, kind_of(error), error.line > 1) == (name, kind, True)
    assert headings(text) == [
        f"{name}: not a known error",
        "Lines around it",
        "What to do next",
        "What to attach to a report",
    ]


def test_the_stack_of_a_fatal_error_is_below_it() -> None:
    text = (
        'Fatal Python error: Illegal instruction\n\nThread 0x1:\n  File "/venv/lib/site-packages/a.py", line 1 in a\n'
    )
    frame = unknown(f'{text}  File "/home/user/b.py", line 2 in b\n').frame
    assert frame is not None
    assert (frame.file, frame.line) == ("/home/user/b.py", 2)


def test_the_report_of_a_launcher_is_not_the_error() -> None:
    assert unknown(f"{TRACEBACK}{LAUNCHER}").name == "KeyError"
    cause = explain_text(LAUNCHER).cause
    assert cause is not None
    assert cause.error.id == "elastic-failure", "without an exception above it, the report is all there is"


def test_the_message_of_an_exception_of_cpp_may_be_known() -> None:
    thrown = "terminate called after throwing an instance of 'std::runtime_error'\n"
    text = f"{thrown}  what():  NCCL Error 1: unhandled cuda error\nAborted (core dumped)\n"
    explanation = explain_text(f"step 1\n{text}")
    assert explanation.cause is not None
    assert (explanation.cause.error.id, explanation.unknown) == ("nccl-cuda", None)
    assert unknown(f"{TRACEBACK}{text}").name == "KeyError"


@pytest.mark.parametrize("order", [(TRACEBACK, DESTROY), (DESTROY, TRACEBACK)])
def test_an_echo_is_not_the_cause_of_a_log_with_another_exception(order: tuple[str, str]) -> None:
    text = "\n".join(order)
    explanation = explain_text(text)
    assert explanation.cause is None
    assert [match.error.id for match in explanation.matches] == ["nccl-destroy"]
    assert headings(text)[0] == "KeyError: not a known error"
    assert headings(text)[-1] == "Also in the log"
    assert "[nccl-destroy], a consequence of another error" in shown(text)


def test_a_known_exception_is_not_unknown() -> None:
    text = (
        f'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\n{samples_of("device-assert")[0]}\n'
    )
    assert explain_text(text).unknown is None


def test_a_traceback_may_be_cut_off() -> None:
    error = unknown(TRACEBACK.rpartition("KeyError")[0])
    assert error.name == "Traceback without its last line"
    assert error.frame is not None
    assert (error.frame.is_own, kind_of(error)) == (True, "program")


def test_a_log_without_errors_ends_with_its_last_lines() -> None:
    text = "\n".join(f"step {number} is done\n" for number in range(9))
    explanation = explain_text(text)
    assert explanation.unknown is None
    assert [line.number for line in explanation.reading.last_lines] == [9, 11, 13, 15, 17]
    assert "step 8 is done" in shown(text)


def test_the_document_of_an_unknown_error() -> None:
    document = json.loads(json.dumps(explanation_document(explain_text(f"{TRACEBACK}{DESTROY}\n"))))
    error = document["unknown"]
    assert (error["name"], error["kind"], error["line"], error["is_cause"]) == ("KeyError", "python", 9, True)
    assert error["frame"] == {
        "file": "/home/user/data.py",
        "line": 12,
        "function": "labels",
        "code": 'return batch["labels"]',
        "marked": 'batch["labels"]',
        "is_own": True,
    }
    assert error["around"][-1]["line"] >= error["line"]
    assert {step["text"] for step in error["attach"]}
    assert not any(match["is_cause"] for match in document["matches"])


def test_hostile_text_is_harmless() -> None:
    text = "".join(f"Error: {number} \x1b]8;;x\x07\x9b31m\n" for number in range(2000))
    assert explain_text(text).unknown is not None
    assert shown(text).replace("\n", "").isprintable()
