"""On a real host: the connections of the GPUs agree with ``nvidia-smi topo -m``, and pick chooses free GPUs."""

import json
import os
import re
import subprocess
import sys
from contextlib import ExitStack

import pytest

from tests.gpu.test_live import load, smi

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180), pytest.mark.xdist_group("gpu")]


def gpumon(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of gpumon."""
    return subprocess.run([sys.executable, "-m", "gpumon", *arguments], capture_output=True, text=True, check=False)


def matrix() -> dict[tuple[int, int], str]:
    """The cells of ``nvidia-smi topo -m`` for pairs of GPUs."""
    text = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True, check=True).stdout
    print(text)
    rows = [re.sub(r"\x1b\[[\d;]*m", "", line).split() for line in text.splitlines()]
    return {
        (int(row[0][3:]), column): cell
        for row in rows
        if row and re.fullmatch(r"GPU\d+", row[0])
        for column, cell in enumerate(row[1 : 1 + len(smi("gpu", "uuid"))])
    }


@pytest.mark.quick
def test_the_matrix_agrees_with_nvidia_smi() -> None:
    done = gpumon("topology", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    print(gpumon("topology").stdout)
    theirs = matrix()
    assert len(document["gpus"]) == len(smi("gpu", "uuid"))
    for pair in document["pairs"]:
        cell = theirs[pair["first"], pair["second"]]
        mine = f"NV{pair['nvlinks']}" if pair["nvlinks"] else str(pair["level"]).upper()
        assert mine == cell, (pair, cell)


_COPIES = """
import time, torch
first = torch.zeros(64 << 20, dtype=torch.float32, device="cuda:0")
second = torch.zeros_like(first, device="cuda:1")
print("ready", flush=True)
end = time.monotonic() + 20
while time.monotonic() < end:
    for _ in range(20):
        second.copy_(first)
    torch.cuda.synchronize()
"""
"""Copies 256 MiB from GPU 0 to GPU 1, again and again."""


def traffic(field: str) -> list[int | None]:
    """The sum of a field over the links of each GPU; None for a GPU without NVLink or without counters."""
    done = gpumon("topology", "--json")
    assert done.returncode == 0, done.stderr
    sums: list[int | None] = []
    for gpu in json.loads(done.stdout)["gpus"]:
        values = [link[field] for link in gpu["links"] or ()]
        known = [value for value in values if value is not None]
        sums.append(sum(known) if known else None)
        missing = [link for link in gpu["links"] or () if link[field] is None]
        assert all(field in link["problems"] for link in missing), "a missing value has its reason"
        assert gpu["links"] is not None or "links" in gpu["problems"]
    return sums


def test_copies_between_two_gpus_raise_the_counters_of_their_links() -> None:
    pytest.importorskip("torch")
    before = traffic("transmitted_bytes")
    if len(before) < 2 or before[0] is None or before[1] is None:
        document = json.loads(gpumon("topology", "--json").stdout)
        reasons = [
            gpu["problems"].get("links") or (gpu["links"] or [{}])[0].get("problems") for gpu in document["gpus"]
        ]
        assert all(reasons), "without counters there is a reason"
        pytest.skip(f"no two GPUs with counters of NVLink: {reasons}")
    with subprocess.Popen([sys.executable, "-c", _COPIES], stdout=subprocess.PIPE, text=True) as copying:
        try:
            assert copying.stdout is not None
            assert copying.stdout.readline() == "ready\n"
            sent, received = traffic("transmit_bytes_per_second"), traffic("receive_bytes_per_second")
        finally:
            copying.kill()
    print("sent", sent, "received", received)
    assert sent[0] is not None
    assert received[1] is not None
    assert sent[0] > 20e9, "an NVLink of a Hopper GPU alone transfers 26 GB/s"
    assert received[1] > 20e9
    after = traffic("transmitted_bytes")
    assert after[0] is not None
    assert after[0] - before[0] > 20e9


def test_a_picked_gpu_is_free_and_is_not_picked_twice(tmp_path: os.PathLike[str]) -> None:
    uuids = [row["uuid"] for row in smi("gpu", "uuid")]
    os.environ["XDG_STATE_HOME"] = str(tmp_path)
    first = gpumon("pick", "--count", str(len(uuids)))
    assert sorted(first.stdout.strip().split(",")) == sorted(uuids), first.stderr
    second = gpumon("pick")
    assert second.returncode == 1
    assert "GPU" in second.stderr


def test_a_gpu_in_use_is_not_picked(tmp_path: os.PathLike[str]) -> None:
    pytest.importorskip("torch")
    os.environ["XDG_STATE_HOME"] = str(tmp_path)
    uuids = [row["uuid"] for row in smi("gpu", "uuid")]
    with load("holding"):
        done = gpumon("pick")
    assert uuids[0] not in done.stdout
    assert (done.returncode == 0) is (len(uuids) > 1)


def test_all_gpus_without_a_job_are_picked(tmp_path: os.PathLike[str]) -> None:
    pytest.importorskip("torch")
    os.environ["XDG_STATE_HOME"] = str(tmp_path)
    uuids = [row["uuid"] for row in smi("gpu", "uuid")]
    used, free = uuids[: len(uuids) // 2], uuids[len(uuids) // 2 :]
    with ExitStack() as loads:
        for index in range(len(used)):
            loads.enter_context(load("matmul", index))
        done, more = gpumon("pick", "--count", str(len(free))), gpumon("pick", "--count", str(len(free) + 1))
    print(done.stdout, more.stderr)
    assert sorted(done.stdout.strip().split(",")) == sorted(free)
    assert more.returncode == 1
