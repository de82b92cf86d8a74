"""Errors on purpose: the mistakes and their fixes, the child process, the verdict, and the confirmation."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gpumon.errors.explain import explain_text
from gpumon.errors.load import ERRORS
from tests.cli.running import run
from tests.fake_torch import fake_torch
from tests.workloads.conftest import Judge, RunWorkload, load_workload, needs_torch

ON_CPU = (
    "dtype-mismatch", "shape", "not-compiled", "pin-memory", "alloc-conf", "load-map",
    "host-allocation", "ddp-unused", "state-dict-mismatch", "weights-only", "nan-loss", "nan-backward",
)  # fmt: skip
WANTED = {
    "oom", "device-mismatch", "dtype-mismatch", "shape", "to-numpy", "bad-ordinal", "no-gpus", "not-compiled", "fork",
    "device-assert", "graph-capture", "pin-memory", "alloc-conf", "load-map", "sync-debug", "ddp-unused",
    "host-allocation", "state-dict-mismatch", "weights-only", "nan-loss", "nan-backward",
}  # fmt: skip

STRAW = f"""{fake_torch(1, "GPU-straw")}
import os
class _Words(list):
    max = lambda self: max(*self)
class _Answer:
    sum = lambda self: self
    item = lambda self: 4.0
tensor = lambda words, device: _Words(words)
ones = lambda rows, columns, device: rows
class nn:
    class functional:
        @staticmethod
        def embedding(words, rows):
            if words.max() >= rows:
                print("Indexing.cu:1: k: block: [0,0,0], thread: [0,0,0] Assertion `index < size` failed.", flush=True)
                raise RuntimeError("CUDA error: device-side assert triggered\\nSearch for it.")
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "7", "one GPU alone"
            return _Answer()
"""
"""As much of torch with CUDA as the workload and one of its mistakes look at."""


@pytest.fixture(scope="module")
def errors() -> ModuleType:
    """The workload's file, loaded without torch."""
    return load_workload("errors")


@pytest.fixture(scope="module")
def snippet() -> ModuleType:
    """What runs pieces of code."""
    return load_workload("_kit.snippet")


@pytest.fixture(params=sorted(load_workload("_kit.mistakes").MISTAKES))
def mistake(request: pytest.FixtureRequest) -> Any:  # noqa: ANN401
    """Each mistake in turn."""
    return load_workload("_kit.mistakes").MISTAKES[request.param]


# The mistakes


def test_what_can_be_shown(errors: ModuleType) -> None:
    assert set(ERRORS) >= set(errors.MISTAKES) >= WANTED
    assert errors._ON_CPU == ON_CPU
    assert [item.name for item in errors.MISTAKES.values() if item.kills] == ["device-assert"]
    (error, _) = errors.WORKLOAD.parameters
    assert "device-assert destroys the CUDA context" in error.help
    assert len(error.help) < 300, "more is cut off"


def test_a_mistake_is_one_place_in_a_file_or_the_environment(mistake: Any) -> None:  # noqa: ANN401
    wrong, fixed = mistake.wrong_code("cuda"), mistake.fixed_code("cuda")
    for code in (wrong, fixed):
        compile(code, "train.py", "exec")
        assert "DEVICE" not in code.replace("CUDA_VISIBLE_DEVICES", "")
    if mistake.wrong_environment:
        assert wrong == fixed
        return
    changed = [item for item in zip(wrong.splitlines(), fixed.splitlines(), strict=True) if item[0] != item[1]]
    assert len(changed) == 1
    assert mistake.code.count(mistake.wrong) == 1


def test_a_mistake_says_what_it_is(mistake: Any) -> None:  # noqa: ANN401
    assert mistake.what.endswith(".")
    assert mistake.fix.endswith((".", ")"))
    assert re.search(mistake.wording, "") is None, "every text would match"
    assert mistake.memory_bytes <= 1 << 28


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("oom", "CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total capacity of 79.1 GiB"),
        ("device-mismatch", "Expected all tensors to be on the same device, but found at least two devices"),
        ("to-numpy", "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor first."),
        ("bad-ordinal", "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?"),
        ("no-gpus", "No CUDA GPUs are available"),
        ("fork", "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use"),
        ("device-assert", "CUDA error: device-side assert triggered\nSearch for `cudaErrorAssert' in https://docs"),
        ("graph-capture", "CUDA error: operation failed due to a previous error during capture"),
        ("graph-capture", "CUDA error: operation not permitted when stream is capturing"),
        ("pin-memory", "cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned"),
        ("sync-debug", "called a synchronizing CUDA operation"),
    ],
)
def test_the_errors_of_a_gpu_are_explained_by_their_own_names(errors: ModuleType, name: str, text: str) -> None:
    assert re.search(errors.MISTAKES[name].wording, text)
    cause = explain_text(f"RuntimeError: {text}").cause
    assert cause is not None
    assert cause.error.id == name


# The child


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1"}


def complained(snippet: ModuleType, text: str, code: int | None = 1) -> Any:  # noqa: ANN401
    return snippet.FinishedProgram(code, "", text, 1.0)


def test_code_runs_in_a_file_of_its_own_and_leaves_nothing(snippet: ModuleType) -> None:
    ran = snippet.run_code("import os\nprint(os.getcwd())\nprint(1 / 1)\n", environment(), 60)
    assert (ran.exit_code, ran.answer, ran.stderr) == (0, "1.0", "")
    assert not Path(ran.stdout.splitlines()[0]).exists()
    assert ran.seconds > 0


def test_the_error_is_told_with_its_class_and_text_first(snippet: ModuleType) -> None:
    code = "import sys\nprint('before', file=sys.stderr)\nraise ValueError('first\\n  second')\n"
    ran = snippet.run_code(code, environment(), 60)
    kind, text = ran.error
    assert (ran.exit_code, kind) == (1, "ValueError")
    assert text.startswith("first\n  second\nbefore\nTraceback (most recent call last):\n")
    assert 'train.py", line 3' in text
    assert text.count("first") == 2, "in the message, and in the line of code that the traceback shows"


@pytest.mark.parametrize(
    ("said", "kind", "text"),
    [
        (
            "Traceback (most recent call last):\n  x\ntorch.OutOfMemoryError: CUDA: out\n",
            "OutOfMemoryError",
            "CUDA: out",
        ),
        ("Traceback (most recent call last):\n  x\nKeyError\n", "KeyError", ""),
        (
            "Traceback (most recent call last):\n  a\nA: 1\n\nAnd\n\nTraceback (most recent call last):\n  b\nB: 2\n",
            "B",
            "2",
        ),
        ("terminate called\nAborted\n", "signal 6", "terminate called\nAborted"),
        ("", "signal 6", ""),
        ("Traceback (most recent call last):\n", "signal 6", "Traceback (most recent call last):"),
    ],
)
def test_the_last_error_counts(snippet: ModuleType, said: str, kind: str, text: str) -> None:
    result, message = complained(snippet, said, -6).error
    assert result == kind
    assert message.startswith(text)


# The verdict


def ran(snippet: ModuleType, code: int | None, answer: str = "", error: str = "") -> Any:  # noqa: ANN401
    text = f"Traceback (most recent call last):\n  x\nRuntimeError: {error}\n" if error else ""
    return snippet.FinishedProgram(code, f"something\n{answer}\n", text, 1.0)


SHAPES = "mat1 and mat2 shapes cannot be multiplied (24x2 and 12x5)"


@pytest.mark.parametrize(
    ("wrong", "fixed", "verdict", "said"),
    [
        ((1, "", SHAPES), (0, "(4, 5)"), "ok", "RuntimeError occurred as expected."),
        ((0, "(4, 5)"), (0, "(4, 5)"), "fail", "ran without an error"),
        ((None,), (0, "(4, 5)"), "fail", "did not end in time"),
        ((1, "", "CUDA out of memory"), (0, "(4, 5)"), "fail", "a different error: RuntimeError: CUDA out of memory"),
        ((-11,), (0, "(4, 5)"), "fail", "a different error: signal 11"),
        ((1, "", SHAPES), (1, "", "still wrong"), "fail", "The fixed program fails: RuntimeError: still wrong"),
        ((1, "", SHAPES), (None,), "fail", "The fixed program fails: no end"),
        ((1, "", SHAPES), (0, "(4, 6)"), "fail", "prints '(4, 6)' instead of '(4, 5)'"),
    ],
)
def test_only_the_right_error_and_the_right_result_are_fine(
    errors: ModuleType, snippet: ModuleType, wrong: tuple[Any, ...], fixed: tuple[Any, ...], verdict: str, said: str
) -> None:
    kind, why = errors.verdict_of(Judge(), errors.MISTAKES["shape"], ran(snippet, *wrong), ran(snippet, *fixed))
    assert kind == verdict
    assert said in why


# The whole of it


@pytest.mark.sampled(4)
@needs_torch
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.xfail(strict=True, reason="the text of the run has no cause"))
        if name == "nan-loss"
        else name
        for name in ON_CPU
    ],
)
def test_on_the_cpu_it_fails_is_mended_and_runs(run_workload: RunWorkload, errors: ModuleType, name: str) -> None:
    done = run_workload("errors", error=name)
    assert done.result["verdict"] == "ok", done.result["why"]
    assert done.exit_code == 0
    (error,) = done.of("error")
    assert error["expected"] is True
    assert re.search(errors.MISTAKES[name].wording, error["text"])
    cause = explain_text(f"{error['class']}: {error['text']}").cause
    assert cause is not None
    no_driver = name == "pin-memory" and cause.error.id == "no-driver"  # what torch for CUDA says on such a host
    assert cause.error.id == name or no_driver, "the explanation that it gets"
    wrong, fixed = (item["text"] for item in done.of("step"))
    assert errors.MISTAKES[name].wrong.replace("DEVICE", "cpu") in wrong
    assert errors.MISTAKES[name].fixed.replace("DEVICE", "cpu") in fixed
    assert [done.metric(item)["value"] for item in ("expected_errors", "right_results")] == [1, 1]
    assert "train.py" in done.stderr, "the whole traceback is in the log"


@needs_torch
def test_an_error_of_a_gpu_is_refused_on_the_cpu_before_anybody_is_asked(run_workload: RunWorkload) -> None:
    done = run_workload("errors", error="device-assert")
    assert done.exit_code == 3
    (error,) = done.of("error")
    assert error["class"] == "UnsupportedError"
    assert "occurs only on a GPU" in error["text"]
    assert not done.of("plan")


def test_a_module_that_the_fixed_code_needs_is_looked_for(errors: ModuleType) -> None:
    context = SimpleNamespace(on_gpu=True, free_memory=lambda: (1 << 40, 1 << 40))
    mistake = errors.MISTAKES["to-numpy"]
    with pytest.raises(Exception, match="to-numpy needs the module no_such_module"):
        errors._require(context, type(mistake)(**{**vars(mistake), "modules": ("no_such_module",)}))


def test_a_full_gpu_is_left_alone(errors: ModuleType) -> None:
    context = SimpleNamespace(on_gpu=True, free_memory=lambda: (100 << 20, 1 << 40))
    with pytest.raises(Exception, match=r"Only 0\.10 GiB are free"):
        errors._require(context, errors.MISTAKES["oom"])


@pytest.mark.parametrize(
    ("ordinal", "visible", "expected"), [(3, None, "3"), (1, "GPU-a, GPU-b", "GPU-b"), (0, "MIG-x", "MIG-x")]
)
def test_the_child_sees_one_gpu_alone(errors: ModuleType, ordinal: int, visible: str | None, expected: str) -> None:
    assert errors.visible_gpu(ordinal, visible) == expected


# The leave


DEVICE_ASSERT = (
    "run", "errors", "--device", "cuda:0", "--python", sys.executable, "--set", "error=device-assert",
)  # fmt: skip


@pytest.fixture
def straw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A torch of straw for this interpreter, and nothing of the user's."""
    (tmp_path / "torch.py").write_text(STRAW)
    homes = {f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("CONFIG", "STATE")}
    return {**os.environ, **homes, "PYTHONPATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": "7"}


def test_what_kills_its_context_does_not_begin_unasked(straw: dict[str, str]) -> None:
    done = run(*DEVICE_ASSERT, env=straw)
    assert done.returncode == 3
    assert "destroys the CUDA context" in done.stderr
    assert "Add --yes to start it." in done.stderr
    assert "embedding" not in done.stdout, "nothing was started"


@pytest.mark.long
def test_with_leave_the_child_alone_dies_of_it(straw: dict[str, str]) -> None:
    done = run(*DEVICE_ASSERT, "--yes", env=straw)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "RuntimeError: CUDA error: device-side assert triggered" in done.stdout
    assert "rows = int(words.max()) + 1" in done.stdout
    assert "gpumon explain --id device-assert" in done.stdout
    assert "prints 4.0" in done.stdout


@pytest.mark.gpu
@needs_torch
def test_the_gpu_works_after_what_kills_a_context(run_workload: RunWorkload) -> None:
    assert run_workload("errors", "cuda:0", error="device-assert").result["verdict"] == "ok"
    assert run_workload("errors", "cuda:0", error="device-mismatch").result["verdict"] == "ok"
    smi = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    assert smi.returncode == 0
