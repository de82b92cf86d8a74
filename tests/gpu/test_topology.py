"""On a real host: the connections of the GPUs agree with ``nvidia-smi topo -m``, and pick chooses free GPUs."""

import json
import os
import re
import subprocess
import sys

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
