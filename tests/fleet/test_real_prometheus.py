"""A real Prometheus that scrapes dcgm-exporter's text of several hosts and gpumon's own exporter."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gpumon.fleet.__main__ import read_snapshot
from gpumon.fleet.exporters import DCGM_XIDS
from gpumon.fleet.model import FleetSnapshot
from gpumon.fleet.prometheus import Prometheus
from gpumon.fleet.query import fleet_query
from gpumon.fleet.settings import FleetSettings, PrometheusAddress
from gpumon.operations.fleet.findings import FindingKind
from gpumon.operations.fleet.history import HostHistoryStream
from gpumon.operations.fleet.queries import FleetList, FleetUsage, finding_query, list_query, read_usage
from gpumon.operations.fleet.report import FleetReport
from tests.cli.running import run
from tests.cli.test_exporter import exporting, read
from tests.fleet.canned import results
from tests.fleet.prometheus_server import needs_prometheus, prometheus
from tests.fleet.targets import BLANK, MIB, FakeHost, serving, write_targets
from tests.nvml_mock import NvmlMock
from tests.present.test_dcgm import BOARD_12239
from tests.processes import IS_INITIAL

pytestmark = [needs_prometheus, pytest.mark.xdist_group("prometheus")]
IDLE_SECONDS = 3.0
SECONDS = 40.0
SHARES = ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")


class Fleet(NamedTuple):
    """A Prometheus, its hosts by path, and the file of its targets."""

    url: str
    hosts: dict[str, FakeHost]
    port: int
    targets: Path

    def read(self, holds: Callable[[FleetSnapshot], bool]) -> FleetSnapshot:
        """The first snapshot for which a condition holds."""
        deadline = time.monotonic() + SECONDS
        while True:
            snapshot = read_snapshot(PrometheusAddress(self.url), idle_seconds=IDLE_SECONDS)
            if holds(snapshot):
                return snapshot
            assert time.monotonic() < deadline, snapshot.gpus
            time.sleep(0.3)


def hosts() -> list[FakeHost]:
    """Four hosts: both generations of labels, blanks, an idle GPU with memory, an Xid, a slow clock."""
    first = FakeHost("node1", gpus=4, labels={"hpc_job": "4711"})
    first.values = {("DCGM_FI_DEV_SM_CLOCK", 1): 900.0, ("DCGM_FI_DEV_GPU_UTIL", 2): 20.0}
    older = FakeHost("node2", gpus=2, uuid_label="uuid", host_label="hostname")
    older.values = {("DCGM_FI_DEV_GPU_UTIL", 1): 0.0, (DCGM_XIDS, 0): 79.0}
    blank = FakeHost("node3", gpus=2)
    blank.values = {("DCGM_FI_DEV_POWER_USAGE", 0): BLANK, ("DCGM_FI_DEV_GPU_UTIL", 1): BLANK}
    return [first, older, blank, FakeHost("node4", gpus=2)]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("prometheus")
    by_name = {host.name: host for host in hosts()}
    targets = folder / "targets.json"
    with serving(by_name) as port:
        write_targets(targets, port, list(by_name))
        with prometheus(folder, targets) as url:
            yield Fleet(url, by_name, port, targets)


def gpumon(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """The command."""
    return run("fleet", *arguments, env=dict(os.environ))


def complete(snapshot: FleetSnapshot) -> bool:
    return len(snapshot.gpus) == 10


def test_the_document_has_the_values_of_the_source(fleet: Fleet) -> None:
    fleet.read(complete)
    result = gpumon("--prometheus", fleet.url, "--json")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    for gpu in document["gpus"]:
        host, number = fleet.hosts[gpu["host"]], int(gpu["gpu"])
        assert gpu["uuid"] == host.uuid(number)
        for name, metric, factor in (
            ("utilization_gpu_percent", "DCGM_FI_DEV_GPU_UTIL", 1),
            ("memory_used_bytes", "DCGM_FI_DEV_FB_USED", MIB),
            ("power_watts", "DCGM_FI_DEV_POWER_USAGE", 1),
            ("temperature_celsius", "DCGM_FI_DEV_GPU_TEMP", 1),
            ("clock_sm_hertz", "DCGM_FI_DEV_SM_CLOCK", 1e6),
            ("tensor_activity_percent", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 100),
        ):
            value = host.value(metric, number)
            assert gpu[name] == (None if value == BLANK else pytest.approx(value * factor)), (gpu["host"], name)
            assert (gpu[name] is None) == (name in gpu["problems"])
        assert gpu["memory_total_bytes"] == 81000 * MIB
        assert gpu["problems"]["sm_activity_percent"]["reason"] == "dcgm-exporter does not report it."
        assert 0 <= gpu["age_seconds"] < 15
    assert document["totals"]["gpus"] == 10
    assert document["not_reported"] == {"dcgm-exporter": ["sm_activity_percent"]}
    assert [gpu["job"] for gpu in document["gpus"]] == ["4711"] * 4 + [None] * 6
    assert {(item["kind"], item["host"], item["gpu"]) for item in document["findings"]} == {
        ("xid", "node2", "0"),
        ("slow_clock", "node1", "1"),
        ("slow_in_job", "node1", "2"),
    }


def test_the_text_and_the_exit_codes(fleet: Fleet) -> None:
    fleet.read(complete)
    result = gpumon("--prometheus", fleet.url)
    assert result.returncode == 0
    assert result.stdout.startswith("10 GPUs on 4 hosts")
    assert "node2 GPU 0: Xid 79" in result.stdout
    assert gpumon("--prometheus", fleet.url, "--match", "bad(").returncode == 3
    assert gpumon("--prometheus", fleet.url, "--match", 'Hostname="node1"').stdout.startswith("4 GPUs on 1 host ")


def test_a_canned_answer_is_that_of_a_real_prometheus(fleet: Fleet) -> None:
    fleet.read(complete)
    deadline = time.monotonic() + SECONDS
    canned = {_identity(item["metric"], item["value"][1]) for item in results(hosts(), 1.0)}
    while True:
        query = fleet_query(idle_seconds=IDLE_SECONDS)
        real = {_identity(labels, value) for labels, value in Prometheus(PrometheusAddress(fleet.url)).query(query)}
        if real == canned:
            return
        assert time.monotonic() < deadline, real ^ canned
        time.sleep(0.5)


def _identity(labels: Any, value: Any) -> tuple[Any, ...]:  # noqa: ANN401 - any JSON
    is_time = str(labels.get("gpumon", "")).startswith("time")
    return (*sorted(labels.items()), "" if is_time else float(value))


def test_the_promql_of_every_list_finds_the_same(fleet: Fleet) -> None:
    snapshot = fleet.read(lambda snapshot: FindingKind.IDLE in {item.kind for item in FleetReport(snapshot).findings})
    report = FleetReport(snapshot)
    server = Prometheus(PrometheusAddress(fleet.url))
    for kind in (FindingKind.XID, FindingKind.SLOW_CLOCK, FindingKind.SLOW_IN_JOB, FindingKind.IDLE):
        query = finding_query(kind, snapshot.exporters, idle_seconds=IDLE_SECONDS)
        uuids = {labels.get("UUID") or labels.get("uuid") for labels, _ in server.query(query)}
        expected = {snapshot.gpus[item.position or 0].uuid for item in report.findings if item.kind is kind}
        assert uuids == expected != set(), kind
    counts = {list_kind: len(list(server.query(list_query(list_kind, snapshot.exporters)))) for list_kind in FleetList}
    assert counts[FleetList.HOSTS] == counts[FleetList.MAP] == 4
    assert counts[FleetList.GPUS] == 10
    assert counts[FleetList.JOBS] == 2, "the job, and the GPUs without one"
    assert list(server.query(finding_query(FindingKind.LAGGING, snapshot.exporters))) == []


def test_usage_adds_up(fleet: Fleet) -> None:
    fleet.read(complete)
    settings = FleetSettings(PrometheusAddress(fleet.url))
    usage = read_usage(settings, ["dcgm-exporter"], 20.0)
    assert usage.problem is None
    rows = {row.job: row for row in usage.rows}
    assert set(rows) == {"4711", ""}
    job = rows["4711"]
    assert job.active_hours == pytest.approx(3 * job.low_hours, rel=0.3), "three GPUs active, one low"
    assert job.idle_hours == 0
    assert job.energy_joules == pytest.approx(job.hours * 3600 * 612.5, rel=0.3)
    assert rows[""].idle_hours > 0
    assert 0 < job.hours < 4 * 21 / 3600
    document = json.loads(gpumon("--prometheus", fleet.url, "--json", "--usage", "20s").stdout)
    assert {row["job"] for row in document["usage"]["rows"]} == {"4711", None}


def test_a_host_over_time_has_the_values_of_the_source(fleet: Fleet) -> None:
    snapshot = fleet.read(complete)
    settings = FleetSettings(PrometheusAddress(fleet.url), interval_seconds=1.0)
    stream = HostHistoryStream(settings, [gpu for gpu in snapshot.gpus if gpu.host == "node3"])
    stream.start()
    try:
        assert stream.inbox.arrived.wait(SECONDS)
        frames = stream.inbox.drain()
        assert stream.problem is None
        deadline = time.monotonic() + SECONDS
        while len(frames) < 3:
            frames += stream.inbox.drain()
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        stream.close()
    first, second = frames[-1].devices  # type: ignore[union-attr]
    assert (first.name, first.get("power_watts"), second.get("power_watts")) == ("NVIDIA H200", None, 612.5)
    assert (first.get("utilization_gpu_percent"), second.get("utilization_gpu_percent")) == (90.0, None)
    assert first.get("memory_total_bytes") == 81000 * MIB
    assert first.problems["power_watts"].reason == "The exporter does not report it."
    times = [frame.time_seconds for frame in frames]  # type: ignore[union-attr]
    assert times == sorted(set(times))


def some_usage(url: str) -> FleetUsage:
    """The usage, once Prometheus has samples at the moments at which it looks."""
    deadline = time.monotonic() + SECONDS
    while True:
        usage = read_usage(FleetSettings(PrometheusAddress(url)), ["gpumon"], 10.0)
        if usage.rows:
            return usage
        assert time.monotonic() < deadline, usage
        time.sleep(0.3)


@pytest.mark.skipif(not IS_INITIAL, reason="needs the initial PID namespace")
@pytest.mark.sampled(1)
@pytest.mark.parametrize("honor_labels", [True, False])
def test_gpumons_own_exporter(honor_labels: bool, nvml_mock: NvmlMock, tmp_path: Path) -> None:
    targets = tmp_path / "targets.json"
    with (
        subprocess.Popen(["sleep", "100"]) as sleeper,
        exporting(env=nvml_mock.environment(2, [sleeper.pid])) as (_, exporter),
    ):
        with serving({}, {"own": lambda: read(exporter)}) as port:
            write_targets(targets, port, ["own"])
            with prometheus(tmp_path, targets, honor_labels=honor_labels) as url:
                fleet = Fleet(url, {}, port, targets)
                snapshot = fleet.read(lambda snapshot: bool(snapshot.gpus) and bool(snapshot.gpus[0].user))
                text = read(exporter)
                usage = some_usage(url)
        sleeper.kill()
    assert [gpu.label for gpu in snapshot.gpus] == ["0", "1"]
    assert {gpu.exporter for gpu in snapshot.gpus} == {"gpumon"}
    assert {gpu.host for gpu in snapshot.gpus} == {"own"}
    (line,) = (line for line in text.splitlines() if line.startswith('gpumon_gpu_memory_total_bytes{gpu="0"'))
    assert snapshot.value("memory_total_bytes", 0) == float(line.rpartition(" ")[2])
    assert snapshot.value("power_watts", 0) is not None
    assert {row.user for row in usage.rows} == {snapshot.gpus[0].user}
    assert usage.rows[0].hours > 0


def test_the_queries_of_grafanas_board_12239_have_values(nvml_mock: NvmlMock, tmp_path: Path) -> None:
    environment = nvml_mock.environment(gpus=2, NVML_MOCK_MIG="1:2")
    with exporting("--names", "dcgm", env=environment) as (_, url):
        (tmp_path / "targets.json").write_text(json.dumps([{"targets": [url.split("/")[2]]}]))
        with prometheus(tmp_path, tmp_path / "targets.json") as address:
            server = Prometheus(PrometheusAddress(address))
            instance = 'DCGM_FI_PROF_GR_ENGINE_ACTIVE{GPU_I_PROFILE="1g.18gb", GPU_I_ID="7", gpu="1"}'
            deadline = time.monotonic() + SECONDS
            while not list(server.query(instance)):
                assert time.monotonic() < deadline
                time.sleep(0.3)
            for name, queries in BOARD_12239.items():
                for query in queries:
                    expression = query.format(f'{name}{{Hostname=~".+", gpu=~"0|1"}}')
                    values = [value for _, value in server.query(expression)]
                    assert values, expression
                    assert name not in SHARES or all(0 < value <= 1 for value in values)
