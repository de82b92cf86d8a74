"""Why NVML does not start."""

from pathlib import Path

import pytest

from gpumon.collect.nvml import failure
from gpumon.collect.nvml_session import kernel_driver_version, library_version, start_problem
from gpumon.core.problems import ProblemCode

CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025\nGCC version: 12\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.148.08  Release Build  (dvs@host)\n"
MAPS = "7f00-7f01 r-xp 00000000 08:01 123    /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.54.15\n"


def proc(folder: Path, version: str | None = None, maps: str | None = None) -> Path:
    (folder / "driver/nvidia").mkdir(parents=True)
    (folder / "self").mkdir()
    if version is not None:
        (folder / "driver/nvidia/version").write_text(version)
    if maps is not None:
        (folder / "self/maps").write_text(maps)
    return folder


@pytest.mark.parametrize(("text", "version"), [(CLOSED, "580.95.05"), (OPEN, "570.148.08"), ("", None), (None, None)])
def test_kernel_driver_version(tmp_path: Path, text: str | None, version: str | None) -> None:
    assert kernel_driver_version(proc(tmp_path, version=text)) == version


@pytest.mark.parametrize(
    ("maps", "version"), [(MAPS, "550.54.15"), ("7f00 /opt/libnvidia-ml.so.1\n", None), (None, None)]
)
def test_library_version(tmp_path: Path, maps: str | None, version: str | None) -> None:
    assert library_version(proc(tmp_path, maps=maps)) == version


def test_a_mismatch_names_both_versions(tmp_path: Path) -> None:
    problem = start_problem(failure(18), proc(tmp_path, CLOSED, MAPS))
    assert problem.code is ProblemCode.LIBRARY_MISMATCH
    assert "580.95.05" in problem.reason
    assert "550.54.15" in problem.reason
    assert problem.remedy


def test_a_mismatch_without_versions_is_still_a_sentence(tmp_path: Path) -> None:
    assert "version unknown" in start_problem(failure(18), tmp_path).reason


def test_an_unknown_error_at_the_start_has_its_usual_cause(tmp_path: Path) -> None:
    assert start_problem(failure(999), tmp_path).code is ProblemCode.CONTAINER_LOST_GPU


def test_other_failures_are_what_they_are(tmp_path: Path) -> None:
    assert start_problem(failure(9), tmp_path) == failure(9).problem
