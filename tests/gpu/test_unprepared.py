"""On a real GPU: a training run that was not prepared is observed from outside, gets a probe, and is traced."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.probe.attach import detach
from gpumon.stacks import outside

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180), pytest.mark.xdist_group("gpu")]

_TRAINING = """
import torch
torch.cuda.set_per_process_memory_fraction(min(1.0, 4e9 / torch.cuda.get_device_properties(0).total_memory))
net = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
batch = torch.randn(2048, 2048, device="cuda")
number = 0
while True:
    loss = net(batch).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    total = loss.item()
    if number == 5:
        print("on", flush=True)
    number += 1
"""


@pytest.fixture
def training(torch_python: str, tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A training run without a probe that waits for its GPU in every step."""
    script = tmp_path / "plain.py"
    script.write_text(_TRAINING)
    with subprocess.Popen([torch_python, str(script)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n"
        yield process
        process.kill()


def gpumon(*arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "gpumon", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=folder)


@pytest.mark.skipif(outside.program() is None, reason="py-spy is not installed")
@pytest.mark.quick
def test_from_outside_with_a_probe_and_a_trace(training: "subprocess.Popen[str]", tmp_path: Path) -> None:
    pid = str(training.pid)
    done = gpumon("why", pid, "--load-probe", "never", "--seconds", "5", "--json", folder=tmp_path)
    document = json.loads(done.stdout)
    assert document["stages"] == ["outside"], done.stderr
    assert document["device"]["utilization_share"] > 0.3
    assert document["step_seconds"] is None
    assert any(part["line"].startswith("plain.py:") for share in document["account"] for part in share["top"])

    done = gpumon("trace", "--pid", pid, "--attach", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob(f"trace-{pid}-*.json.gz"))
    done = gpumon("why", pid, "--no-trace", "--json", folder=tmp_path)
    assert json.loads(done.stdout)["stages"] == ["passive"], done.stderr
    assert f'"pid": {pid}' in gpumon("memory", "--pid", pid, "--json", folder=tmp_path).stdout
    assert detach(training.pid) is not None
    assert training.poll() is None
