"""Builds the stand-in for ``libnvidia-ml.so.1`` and describes a host to the stand-in; see README.md for its faults."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
LIBRARY: Final = "libnvidia-ml.so.1"


@dataclass(frozen=True, slots=True)
class NvmlMock:
    """A compiled stand-in.

    Attributes:
        folder: Where the library lies.
    """

    folder: Path

    def environment(
        self,
        gpus: int = 8,
        pids: Sequence[int] = (),
        fault: str = "",
        control: Path | None = None,
        log: Path | None = None,
        **more: str,
    ) -> dict[str, str]:
        """Environment of a process that uses the stand-in.

        Args:
            gpus: Number of GPUs.
            pids: Processes on them, dealt in turn.
            fault: Faults from the start on.
            control: File whose content replaces the faults while the process runs.
            log: File to which the calls are counted.
            **more: Further variables, such as ``NVML_MOCK_PROCS="1"``.
        """
        settings = {
            "LD_LIBRARY_PATH": str(self.folder),
            "NVML_MOCK_GPUS": str(gpus),
            "NVML_MOCK_PIDS": ",".join(map(str, pids)),
            "NVML_MOCK_FAULT": fault,
            "NVML_MOCK_CTL": str(control or ""),
            "NVML_MOCK_LOG": str(log or ""),
        }
        return {**_clean_environment(), **settings, **more}

    def environment_without_library(self) -> dict[str, str]:
        """Environment of a process that finds no NVML, even on a host that has one."""
        return {**_clean_environment(), "LD_LIBRARY_PATH": str(self.folder / "none")}


def compiler() -> str | None:
    """The C compiler of this host, if it has one."""
    return shutil.which("cc") or shutil.which("gcc")


def build(folder: Path, old: bool = False) -> NvmlMock:
    """Compiles the stand-in into ``folder``, unless it is there.

    Args:
        folder: A folder for it alone.
        old: Leave out what drivers of about 2020 (R450) do not have.
    """
    if (folder / "none" / LIBRARY).exists():
        return NvmlMock(folder)
    cc = compiler()
    assert cc is not None, "there is no C compiler"
    options = ["-std=gnu11", "-O0", "-w", "-fPIC", "-shared", "-fvisibility=hidden", f"-Wl,-soname,{LIBRARY}"]
    options += ["-DNVML_MOCK_OLD"] if old else []
    command = [cc, *options, "-o", str(folder / LIBRARY), str(HERE / "nvml_mock.c"), "-lm", "-lpthread"]
    subprocess.run(command, check=True, capture_output=True)
    (folder / "none").mkdir()
    (folder / "none" / LIBRARY).touch()  # no library at all: the loader stops at an empty file of that name
    return NvmlMock(folder)


def _clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("NVML_MOCK", "GPUMON"))}
