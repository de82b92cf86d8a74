"""Which Python runs a workload, found without ever importing torch."""

import os
import sys
import venv
from pathlib import Path

import pytest

from gpumon.core.problems import CommandError, ExitCode, ProblemCode
from gpumon.workload_runs import interpreter
from gpumon.workload_runs.interpreter import Interpreter, every_interpreter, find_interpreter
from tests.core.test_ownership import needs_root

HAS_TORCH = "echo python True True"
NO_TORCH = "echo python True False"
TOO_OLD = "echo python False True"


def program(path: Path, says: str) -> Path:
    """A program that answers like a Python."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{says}\n")
    path.chmod(0o755)
    return path


class Places:
    """Everywhere where an interpreter is looked for, each with one that has no torch."""

    def __init__(self, folder: Path) -> None:
        self.own = program(folder / "own" / "bin" / "python", NO_TORCH)
        self.virtual = program(folder / "virtual" / "bin" / "python", NO_TORCH)
        self.conda = program(folder / "conda" / "bin" / "python", NO_TORCH)
        self.path3 = program(folder / "path" / "python3", NO_TORCH)
        self.path = program(folder / "path" / "python", NO_TORCH)
        self.environment = {
            "VIRTUAL_ENV": str(folder / "virtual"),
            "CONDA_PREFIX": str(folder / "conda"),
            "PATH": str(folder / "path"),
        }

    @property
    def in_order(self) -> list[tuple[Path, str]]:
        return [
            (self.own, "gpumon's own environment"),
            (self.virtual, "VIRTUAL_ENV"),
            (self.conda, "CONDA_PREFIX"),
            (self.path3, "PATH"),
            (self.path, "PATH"),
        ]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    result = Places(tmp_path)
    monkeypatch.setattr(sys, "executable", str(result.own))
    return result


def refusal(asked: str | None, environment: dict[str, str] | None = None) -> CommandError:
    with pytest.raises(CommandError) as refused:
        find_interpreter(asked, environment)
    assert refused.value.problem.reason.endswith(".")
    assert refused.value.problem.remedy.endswith(".")
    return refused.value


@pytest.mark.parametrize("first", range(5))
def test_the_first_with_torch_is_taken(places: Places, first: int) -> None:
    for path, _ in places.in_order[first:]:
        program(path, HAS_TORCH)
    assert find_interpreter(None, places.environment) == Interpreter(*places.in_order[first])


@pytest.mark.parametrize("says", [TOO_OLD, "exit 1", "", "echo hello", "kill -9 $$", f"{HAS_TORCH}; exit 1"])
def test_one_that_cannot_be_used_is_passed_over(places: Places, says: str) -> None:
    program(places.virtual, says)
    program(places.conda, HAS_TORCH)
    assert find_interpreter(None, places.environment).path == places.conda


def test_one_that_hangs_is_passed_over(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "_TIMEOUT_SECONDS", 0.3)
    program(places.virtual, "exec sleep 60")
    monkeypatch.setattr(interpreter, "_TIMEOUT_SECONDS", 2.0)
    program(places.conda, HAS_TORCH)
    assert find_interpreter(None, places.environment).path == places.conda


def test_a_banner_before_the_answer_does_not_matter(places: Places) -> None:
    program(places.virtual, f"echo Welcome to node7; {HAS_TORCH}")
    assert find_interpreter(None, places.environment).path == places.virtual


def test_without_any_all_that_were_looked_at_are_told(places: Places) -> None:
    environment = {**places.environment, "CONDA_PREFIX": "/nowhere/\x1b[2J"}
    error = refusal(None, environment)
    assert error.exit_code is ExitCode.MISSING_PREREQUISITE
    assert error.problem.code is ProblemCode.NO_TORCH
    assert f"{places.virtual} (VIRTUAL_ENV); /nowhere/\ufffd[2J/bin/python (CONDA_PREFIX)" in error.problem.reason
    assert "--python" in error.problem.remedy


def test_what_was_asked_for_is_taken_and_nothing_else_tried(places: Places, tmp_path: Path) -> None:
    asked = program(tmp_path / "asked" / "python", HAS_TORCH)
    assert find_interpreter(str(asked), places.environment) == Interpreter(asked, "--python")
    program(places.virtual, HAS_TORCH)
    assert refusal(str(program(asked, NO_TORCH)), places.environment).problem.code is ProblemCode.NO_TORCH


def test_a_program_on_path_can_be_asked_for_by_its_name(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    program(places.path3, HAS_TORCH)
    monkeypatch.setenv("PATH", f"{places.path3.parent}:{os.environ['PATH']}")
    assert find_interpreter("python3").path == places.path3


def test_a_relative_path_is_meant_from_where_the_user_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "env" / "python", HAS_TORCH)
    monkeypatch.chdir(tmp_path)
    assert find_interpreter("env/python").path == tmp_path / "env" / "python"


@pytest.mark.parametrize(
    ("says", "reason", "code"),
    [
        (NO_TORCH, "has no torch.", ExitCode.MISSING_PREREQUISITE),
        (TOO_OLD, "is older than Python 3.9.", ExitCode.MISSING_PREREQUISITE),
        ("exec sleep 60", "is not Python.", ExitCode.USAGE),
        ("exit 1", "is not Python.", ExitCode.USAGE),
        ("echo ruby True True", "is not Python.", ExitCode.USAGE),
    ],
)
def test_what_was_asked_for_and_cannot_be_used_is_told(
    tmp_path: Path, says: str, reason: str, code: ExitCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreter, "_TIMEOUT_SECONDS", 2.0)
    asked = program(tmp_path / "python", says)
    error = refusal(str(asked))
    assert error.problem.reason == f"{asked} {reason}"
    assert error.exit_code is code


@pytest.mark.parametrize("asked", ["/bin/true", "/bin/cat"])
def test_a_program_that_is_no_python_is_told(asked: str) -> None:
    error = refusal(asked)
    assert (error.problem.reason, error.exit_code) == (f"{asked} is not Python.", ExitCode.USAGE)


@pytest.mark.parametrize("asked", ["/", "no-such-python", "/nowhere/python", "", "py\x1b[2J"])
def test_what_is_no_program_is_told(asked: str) -> None:
    error = refusal(asked)
    assert error.problem.reason.startswith("There is no program ")
    assert "\x1b" not in error.problem.reason
    assert error.exit_code is ExitCode.USAGE


def test_a_python_of_a_virtual_environment_is_not_resolved_through_its_link(tmp_path: Path) -> None:
    venv.create(tmp_path / "env", symlinks=True, with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    assert python.is_symlink()
    refused = refusal(str(python))
    assert refused.problem.reason == f"{python} has no torch."
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").write_text("raise SystemExit('torch was imported')")
    assert find_interpreter(str(python)) == Interpreter(python, "--python")


def test_a_folder_called_torch_where_the_user_is_is_not_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    venv.create(tmp_path / "env", symlinks=True, with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    (tmp_path / "here" / "torch").mkdir(parents=True)
    (tmp_path / "here" / "torch" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend("")  # as with python -m gpumon
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(sys, "executable", str(python))
    assert refusal(str(python)).problem.code is ProblemCode.NO_TORCH
    assert refusal(None, {"PATH": ""}).problem.code is ProblemCode.NO_TORCH


def test_a_folder_of_data_called_torch_is_not_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    venv.create(tmp_path / "env", symlinks=True, with_pip=False)
    (tmp_path / "data" / "torch").mkdir(parents=True)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "data"))
    assert refusal(str(tmp_path / "env" / "bin" / "python")).problem.code is ProblemCode.NO_TORCH


@needs_root
def test_root_runs_no_python_of_another_user_unless_it_is_named(places: Places, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    program(places.virtual, f"touch {ran}; {HAS_TORCH}")
    os.chown(tmp_path / "virtual", 4242, 4242)
    error = refusal(None, places.environment)
    assert error.exit_code is ExitCode.MISSING_PREREQUISITE
    reason = f"not run: The folder {tmp_path / 'virtual'} belongs to another user (UID 4242)"
    assert f"{places.virtual} (VIRTUAL_ENV; {reason}); {places.conda} (CONDA_PREFIX)" in error.problem.reason
    refusals = [python.refusal is not None for python in every_interpreter(environment=places.environment)]
    assert refusals == [False, True, False, False, False]
    assert not ran.exists()
    assert find_interpreter(str(places.virtual), places.environment) == Interpreter(places.virtual, "--python")


@needs_root
def test_gpumons_own_python_is_used_whoever_owns_it(places: Places, tmp_path: Path) -> None:
    program(places.own, HAS_TORCH)
    os.chown(tmp_path / "own", 4242, 4242)
    assert find_interpreter(None, places.environment).path == places.own
