"""The bundle for sharing: it identifies neither a person nor a host, and its author sees what was replaced."""

import stat
from pathlib import Path
from typing import cast

import pytest

from gpumon.core.model import Host
from gpumon.core.problems import CommandError, ExitCode
from gpumon.health.doctor.check import Facts
from gpumon.health.doctor.rules import ready
from gpumon.operations.doctor.bundle import Removed, refuse_existing, save_bundle
from gpumon.operations.doctor.examination import Examination
from gpumon.operations.doctor.redaction import Redactor
from tests import builders
from tests.health.doctor_facts import environment, facts, gpu, machine
from tests.limits import file_size_limit

UUID = "GPU-01234567-89ab-cdef-0123-456789abcdef"


class Examined:
    """An examination that is over."""

    def __init__(self, result: Facts) -> None:
        self.facts = result
        self.checks = list(ready(result, ()))


def bundle(tmp_path: Path, result: Facts) -> tuple[str, Removed]:
    """The text of a bundle, and what was removed."""
    file = tmp_path / "bundle.txt"
    removed = save_bundle(file, cast("Examination", Examined(result)), tmp_path / "root")
    return file.read_text(), removed


def test_texts() -> None:
    for row in Path(__file__).with_name("redacted_texts.txt").read_text().splitlines():
        text, _, shown = row.partition(" => ")
        redactor = Redactor(users=["ada", "jo", "root", "ubuntu"], hosts=["node7.example.org"], homes=["/home/ada"])
        assert redactor.text(text) == shown
        assert bool(redactor.removed) == (text != shown)


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("WANDB_API_KEY", "x", "<secret>"),
        ("HF_TOKEN", "y", "<secret>"),
        ("DB_PASSWORD", "z", "<secret>"),
        ("NCCL_DEBUG", "INFO", "INFO"),
        ("CUDA_VISIBLE_DEVICES", UUID, "<UUID 1>"),
        ("SLURM_X", "Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MGFiY2RlZg", "<secret>"),
        ("NCCL_STORE_PW", "hunter2", "<secret>"),
        ("NCCL_COMM_PW_FILE", "x", "<secret>"),
        ("TORCH_RDZV", "c10d://login01.corp.example.com:29500", "c10d://<host 1>:29500"),
        ("TORCH_HOME", "/data/users/jdoe", "/data/users/<name 1>"),
        ("CONDA_DEFAULT_ENV", "acme-llm", "<name 1>"),
        ("CONDA_PREFIX", "/net/alice.smith/envs/acme", "/net/<name 1>/envs/<name 2>"),
        ("SLURM_JOB_QOS", "acme", "<name 1>"),
        ("SLURM_NTASKS", "16", "16"),
        ("PYTORCH_ALLOC_CONF", "max_split_size_mb:128", "max_split_size_mb:128"),
        ("LD_LIBRARY_PATH", "/home/ada/lib:/usr/lib/x86_64-linux-gnu", "~/lib:/usr/lib/x86_64-linux-gnu"),
    ],
)
def test_variables(name: str, value: str, shown: str) -> None:
    assert Redactor(users=["ada"]).variable(name, value) == shown


def test_nothing_tells_whose_machine_it_is(tmp_path: Path) -> None:
    process = builders.process(7, user="ada", command="python /home/ada/secret_project/train.py --key hunter2")
    frame = machine(
        devices=(gpu(0, uuid=UUID, processes=(process,)),), host=Host("node7.example.org", 8, 1.0, (1.0, 1.0, 1.0))
    )
    variables = {
        "HF_TOKEN": "hf_secretsecretsecret",
        "NCCL_SOCKET_IFNAME": "eth0",
        "MY_OWN": "private",
        "BUILD_REQUESTEDFOR": "Lovelace",
        "SLURM_JOB_NODELIST": "acme-gpu[01-04]",
        "SLURM_JOB_ACCOUNT": "acme-llm",
        "SLURM_NTASKS": "16",
        "HOME": "/home/ada",
    }
    root = tmp_path / "root/etc"
    root.mkdir(parents=True)
    (root / "passwd").write_text("root:x:0:0::/root:/bin/sh\nbob:x:1001:1001::/data/people/bob:/bin/sh\n")
    (root / "hostname").write_text("gpubox\n")
    (root / "os-release").write_text("PRETTY_NAME=Ubuntu\nHOME_OF=/data/people/bob/x bob gpubox 192.168.7.9\n")
    text, removed = bundle(tmp_path, facts(frame, Environment=environment(**variables)))
    private = (
        "ada", "node7", "bob", "gpubox", "192.168.7.9", UUID, "hunter2", "secret_project", "hf_secret", "private",
        "Lovelace",
    )  # fmt: skip
    assert "acme" not in text
    assert "SLURM_NTASKS=16" in text
    assert [word for word in private if word in text] == []
    assert "NCCL_SOCKET_IFNAME=eth0" in text
    assert "torch==2.13.0+cu130" in text
    assert "PRETTY_NAME=Ubuntu" in text
    assert {"user", "host", "address", "UUID", "home folder"} <= set(removed.counts)
    assert removed.variables == 6
    assert "6 environment variables" in str(removed)


def test_only_its_author_can_read_it(tmp_path: Path) -> None:
    bundle(tmp_path, facts())
    assert stat.S_IMODE((tmp_path / "bundle.txt").stat().st_mode) == 0o600


def test_other_hosts_and_people_are_replaced_wherever_they_are(tmp_path: Path) -> None:
    variables = {
        "TORCH_RDZV": "c10d://login01.corp.example.com:29500",
        "NCCL_COMM_ID": "rank0-host:12345",
        "MASTER_ADDR": "gpu-17",
        "TORCH_HOME": "/data/users/jdoe",
        "TRITON_CACHE_DIR": "/net/alice.smith/cache",
        "NCCL_STORE_PW": "hunter2",
        "PATH": "/projects/acme/bin:/usr/bin",
    }
    etc = tmp_path / "root/etc"
    etc.mkdir(parents=True)
    (etc / "os-release").write_text("NOTE=login01 gpu-17 rank0-host login01.corp.example.com /data/users/jdoe\n")
    text, removed = bundle(tmp_path, facts(Environment=environment(**variables)))
    private = ("login01", "corp", "rank0", "gpu-17", "jdoe", "alice", "smith", "hunter2", "acme")
    assert [word for word in private if word in text] == []
    assert "NCCL_COMM_ID=<host" in text
    assert ":12345" in text
    assert {"host", "name", "secret"} <= set(removed.counts)


def test_a_full_disk_leaves_no_file_so_that_the_next_attempt_succeeds(tmp_path: Path) -> None:
    with file_size_limit(1000), pytest.raises(CommandError, match="cannot be written: file too large"):
        bundle(tmp_path, facts())
    assert list(tmp_path.iterdir()) == []
    assert "===== doctor.json =====" in bundle(tmp_path, facts())[0]


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "bundle.txt"
    file.write_text("mine")
    for refused in (lambda: refuse_existing(file), lambda: bundle(tmp_path, facts())):
        with pytest.raises(CommandError, match="already exists") as error:
            refused()
        assert error.value.exit_code is ExitCode.USAGE
    assert file.read_text() == "mine"


def test_nothing_to_replace_is_said() -> None:
    assert str(Removed({}, 0)).startswith("Nothing was replaced.")
