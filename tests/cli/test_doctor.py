"""`gpumon doctor` as scripts and people use it."""

import json
from pathlib import Path

import pytest

from tests.cli.running import is_one_line, run
from tests.nvml_mock import NvmlMock

STATES = {"ok", "warn", "fail", "skip"}


def without_torch(folder: Path) -> str:
    """Hides the torch of this interpreter, whose import takes seconds; returns the value of PYTHONPATH."""
    (folder / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')")
    return str(folder)


@pytest.fixture
def alone(nvml_mock: NvmlMock, tmp_path: Path) -> dict[str, str]:
    """The environment of a host with two GPUs, few Pythons, and no torch."""
    environment = nvml_mock.environment(gpus=2) | {"PATH": "/usr/bin:/bin", "PYTHONPATH": without_torch(tmp_path)}
    return {name: value for name, value in environment.items() if name not in {"VIRTUAL_ENV", "CONDA_PREFIX"}}


def test_one_document(alone: dict[str, str]) -> None:
    done = run("doctor", "--json", env=alone)
    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert document.keys() == {"schema", "verdict", "checks"}
    assert document["schema"] == 1
    for check in document["checks"]:
        assert check.keys() == {"id", "status", "detail", "fix"}
        assert check["status"] in STATES
        assert check["detail"]
        assert bool(check["fix"]) == (check["status"] in {"warn", "fail"})
    assert len({check["id"] for check in document["checks"]}) == len(document["checks"])
    assert (done.returncode == 1) == (document["verdict"] == "fail")


@pytest.mark.long
def test_text_without_colours_says_what_failed_and_what_to_do(nvml_mock: NvmlMock, tmp_path: Path) -> None:
    few = {"PATH": "/usr/bin:/bin", "PYTHONPATH": without_torch(tmp_path)}
    done = run("doctor", env=nvml_mock.environment_without_library() | few)
    assert (done.returncode, done.stderr) == (1, "")
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    failed = next(place for place, line in enumerate(lines) if "FAIL  nvml" in line)
    assert "→ Install the NVIDIA driver" in "\n".join(lines[failed : failed + 4])
    assert "failed" in lines[-1]
    assert {" Driver", " GPUs", " Host", " Environment variables", " Python"} <= set(lines)


@pytest.mark.parametrize("python", ["no-such-program", "/none/python"])
def test_a_python_that_is_not_there(nvml_mock: NvmlMock, python: str) -> None:
    done = run("doctor", "--python", python, env=nvml_mock.environment(gpus=1))
    assert (done.returncode, done.stdout) == (2, "")
    assert is_one_line(done.stderr)


def test_a_bundle_is_written_once(alone: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "bundle.txt"
    environment = alone | {"HF_TOKEN": "hf_abcdefghijklmnop"}
    done = run("doctor", "--json", "--bundle", str(file), env=environment)
    json.loads(done.stdout)
    assert "Omitted:" in done.stderr
    text = file.read_text()
    assert "hf_abcdefghijklmnop" not in text
    assert "===== doctor.json =====" in text
    again = run("doctor", "--bundle", str(file), env=environment)
    assert (again.returncode, again.stdout) == (2, "")
    assert "already exists" in again.stderr
    assert is_one_line(again.stderr)
    assert file.read_text() == text
