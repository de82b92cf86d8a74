"""`gpumon empty-cache`: what a process with the probe returns, after a confirmation."""

from pathlib import Path

from tests.cli.running import run
from tests.nvml_mock import NvmlMock
from tests.probe.children import running

_PROGRAM = """
import torch, types
torch.cuda.get_device_properties = lambda ordinal: types.SimpleNamespace(name="H200", total_memory=1 << 37, uuid="u")
torch.cuda.allocate(0, 1 << 30)
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_process_empties_its_cache_after_a_confirmation(nvml_mock: NvmlMock, short_path: Path) -> None:
    with running(short_path, "import sys\n" + _PROGRAM) as program:
        assert program.hear() == "ready"
        program.socket()
        environment = nvml_mock.environment(gpus=1, GPUMON_PROBE_DIR=str(short_path / "sockets"))
        pid = str(program.process.pid)
        assert run("empty-cache", pid, env=environment).returncode == 2, "without a terminal it needs --yes"
        assert run("empty-cache", pid, "--yes", "--read-only", env=environment).returncode == 2
        done = run("empty-cache", pid, "--yes", env=environment)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("cuda:0: Nothing was released: PyTorch reserves 1.00 GiB.")
        assert "live tensors hold it" in done.stdout
