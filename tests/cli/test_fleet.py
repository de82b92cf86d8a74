"""`gpumon fleet` without a terminal: where its settings come from, exit codes, and secrets."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import run
from tests.cli.test_job import with_squeue
from tests.fleet.canned import responding
from tests.fleet.fake_prometheus import FakePrometheus, body, serving
from tests.fleet.hosts import mixed_hosts
from tests.fleet.slurm_jobs import jobs_of


@pytest.fixture
def fake() -> Iterator[FakePrometheus]:
    with serving(responding(mixed_hosts(4))) as server:
        yield server


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}


def test_usage_errors(env: dict[str, str], tmp_path: Path) -> None:
    for arguments, text in (
        ([], "--prometheus URL"),
        (["--prometheus", "prometheus:9090"], "is not a URL"),
        (["--prometheus", "http://ann:hunter2@a"], "Use --user and --password-file"),
        (["--prometheus", "http://a", "--token-file", str(tmp_path / "none")], "cannot be read"),
        (["--prometheus", "https://a", "--ca-file", str(tmp_path / "none")], "cannot be used for TLS"),
    ):
        result = run("fleet", *arguments, env=env)
        assert result.returncode == 2, arguments
        assert text in result.stderr
        assert "hunter2" not in result.stderr


def test_prometheus_that_cannot_be_read(env: dict[str, str], fake: FakePrometheus) -> None:
    assert run("fleet", "--prometheus", "http://127.0.0.1:9", env=env).returncode == 3
    fake.respond = body(b"", 403)
    result = run("fleet", "--prometheus", fake.url, "--json", env=env)
    assert (result.returncode, result.stdout) == (3, "")
    assert "refuses access (HTTP 403)" in result.stderr


def test_the_configuration_file_names_prometheus(env: dict[str, str], fake: FakePrometheus, tmp_path: Path) -> None:
    (tmp_path / "gpumon").mkdir()
    (tmp_path / "gpumon/config.toml").write_text(
        f'interval = 2\n[fleet]\nprometheus = "{fake.url}"\nmatch = \'zone="b"\'\ninterval = 30\n'
    )
    result = run("fleet", "--json", "--usage", "6h", env=env)
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert (document["schema"], document["totals"]["gpus"], document["totals"]["busy"]) == (1, 32, 24)
    assert [row["job"] for row in document["usage"]["rows"]] == [None, "4700"]
    assert all('zone="b"' in fields["query"] for fields in fake.queries)
    assert result.stderr == ""


def test_secrets_of_the_environment_and_of_files(env: dict[str, str], fake: FakePrometheus, tmp_path: Path) -> None:
    secrets = {**env, "GPUMON_FLEET_TOKEN": "sesame", "GPUMON_FLEET_PASSWORD": "open"}
    password = tmp_path / "password"
    password.write_text("hunter2\n")
    token = run("fleet", "--prometheus", fake.url, env=secrets)
    user = run("fleet", "--prometheus", fake.url, "--user", "ann", env=secrets)
    file = run("fleet", "--prometheus", fake.url, "--user", "ann", "--password-file", str(password), env=secrets)
    assert [headers["Authorization"] for headers in fake.headers] == [
        "Bearer sesame",
        "Basic YW5uOm9wZW4=",
        "Basic YW5uOmh1bnRlcjI=",
    ]
    for result in (token, user, file):
        assert result.returncode == 0
        assert "32 GPUs on 4 hosts" in result.stdout
        assert "sesame" not in result.stdout + result.stderr


def test_jobs_of_slurm_are_joined(env: dict[str, str], fake: FakePrometheus, tmp_path: Path) -> None:
    entries = jobs_of(mixed_hosts(4))
    env = env | {"PATH": with_squeue(tmp_path, *entries)["PATH"]}
    result = run("fleet", "--prometheus", fake.url, "--json", "--usage", "6h", env=env)
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    (job,) = document["jobs"]
    assert (job["job"], job["name"], job["users"]) == ("4700", "llama-70b-sft", ["ada"])
    assert (job["requested_gpus"], job["gpus"], job["used_gpus"], job["hosts"]) == (32, 32, 24, 4)
    assert {(gpu["user"], gpu["job"]) for gpu in document["gpus"]} == {("ada", "4700")}
    assert {row["user"] for row in document["usage"]["rows"] if row["job"]} == {"ada"}
    text = run("fleet", "--prometheus", fake.url, env=env).stdout
    assert "Slurm: 1 job has 32 of 32 GPUs." in text
    (tmp_path / "squeue").write_text("#!/bin/sh\necho 'slurm_load_jobs error: no controller' >&2; exit 1\n")
    failed = run("fleet", "--prometheus", fake.url, "--json", env=env)
    assert failed.returncode == 0, "values without their jobs are better than none"
    assert "no controller" in json.loads(failed.stdout)["slurm_problem"]["reason"]
