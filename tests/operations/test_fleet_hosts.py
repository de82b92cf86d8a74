"""Hosts through ssh as a fleet: values, hosts that report nothing, and the names of hosts."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import isnan, nan
from pathlib import Path

import pytest

from gpumon.core.model import Frame
from gpumon.core.problems import CommandError, Problem, ProblemCode
from gpumon.fleet.codec import SnapshotDecoder, SnapshotEncoder
from gpumon.fleet.model import BUSIEST, FleetSnapshot
from gpumon.fleet.settings import HostsSettings
from gpumon.operations.fleet.document import fleet_document
from gpumon.operations.fleet.findings import FindingKind
from gpumon.operations.fleet.report import FleetReport
from gpumon.operations.fleet.ssh import SshFleet, _BusyHistory, parse_hosts, read_hosts
from gpumon.streams.base import FrameInbox
from tests import builders


class FakeStream:
    """A host that sends what the test puts into its inbox."""

    title = ""

    def __init__(self, host: str, interval: float) -> None:
        self.inbox = FrameInbox()
        self.problem: Problem | None = None
        self.host, self.interval = host, interval
        self.is_open = False

    def start(self) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False


@contextmanager
def fleet(*hosts: str) -> Iterator[tuple[SshFleet, dict[str, FakeStream]]]:
    streams: dict[str, FakeStream] = {}

    def make(host: str, interval: float) -> FakeStream:
        return streams.setdefault(host, FakeStream(host, interval))

    opened = SshFleet(HostsSettings(hosts, 0.5), make)
    opened.start()
    try:
        yield opened, streams
    finally:
        opened.close()
        assert not any(stream.is_open for stream in streams.values())


def snapshot_with(opened: SshFleet, gpus: int) -> FleetSnapshot:
    deadline = time.monotonic() + 10
    while opened.snapshot is None or len(opened.snapshot.gpus) != gpus:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return opened.snapshot


def test_values_of_every_host() -> None:
    with fleet("a", "b") as (opened, streams):
        streams["a"].inbox.put(builders.frame())
        missing = builders.device(readings={"power_watts": None})
        streams["b"].inbox.put(builders.frame(devices=(missing,)))
        snapshot = snapshot_with(opened, 3)
        assert [(gpu.host, gpu.label, gpu.user) for gpu in snapshot.gpus] == [
            ("a", "0", "ada"),
            ("a", "1", "ada"),
            ("b", "0", "ada"),
        ]
        assert snapshot.value("utilization_gpu_percent", 0) == 87
        assert snapshot.value("power_watts", 2) is None
        assert snapshot.value(BUSIEST, 0) is None
        assert "sm_activity_percent" in snapshot.missing["ssh"]


def test_a_stream_of_one_host_has_its_last_and_its_next_frames() -> None:
    with fleet("a", "b") as (opened, streams):
        assert opened.follow("a") is None
        streams["a"].inbox.put(builders.frame(), builders.frame())
        snapshot_with(opened, 2)
        follower = opened.follow("a")
        assert follower is not None
        follower.start()
        assert len(follower.inbox.drain()) == 2
        streams["b"].inbox.put(builders.frame())
        streams["a"].inbox.put(builders.frame())
        assert follower.inbox.arrived.wait(5)
        (frame,) = follower.inbox.drain()
        assert isinstance(frame, Frame)
        streams["a"].problem = Problem(ProblemCode.NOT_READ, "gone")
        assert follower.problem == streams["a"].problem
        follower.close()
        streams["a"].inbox.put(builders.frame())
        snapshot_with(opened, 4)
        assert not follower.inbox.arrived.wait(1.2)


def test_a_connection_that_ends_is_a_finding_while_the_last_values_stay() -> None:
    with fleet("a") as (opened, streams):
        streams["a"].inbox.put(builders.frame())
        snapshot_with(opened, 2)
        streams["a"].problem = Problem(ProblemCode.NOT_READ, "The collector on the host ended with code 9.")
        time.sleep(1.1)
        snapshot = snapshot_with(opened, 2)
        (finding,) = FleetReport(snapshot).findings
        assert (finding.kind, finding.host, finding.position) == (FindingKind.LAGGING, "a", None)
        assert "code 9" in finding.text


def test_one_frame_of_every_host_or_the_reason() -> None:
    def make(host: str, interval: float) -> FakeStream:
        stream = FakeStream(host, interval)
        if host == "b":
            stream.problem = Problem(ProblemCode.NOT_READ, "ssh failed: it gave no reason.")
        elif host == "a":
            stream.inbox.put(builders.frame())
        return stream

    started = time.monotonic()
    snapshot = read_hosts(HostsSettings(("a", "b"), 0.5), 20, make)
    assert time.monotonic() - started < 5
    assert len(snapshot.gpus) == 2
    snapshot = read_hosts(HostsSettings(("a", "b", "c"), 0.5), 0.3, make)
    assert snapshot.host_problems["c"].reason == "The host sent nothing within 0.3 s."
    document = fleet_document(FleetReport(snapshot))
    problems = {host["name"]: host["problem"] and host["problem"]["reason"] for host in document["hosts"]}
    assert problems == {"a": None, "b": "ssh failed: it gave no reason.", "c": "The host sent nothing within 0.3 s."}


def test_a_host_without_frames_has_a_reason() -> None:
    with fleet("a", "b") as (opened, streams):
        refused = Problem(ProblemCode.NOT_READ, "ssh failed: Permission denied.")
        streams["b"].problem = refused
        streams["a"].inbox.put(builders.frame())
        snapshot = snapshot_with(opened, 2)
        assert snapshot.silent_hosts == ("b",)
        assert snapshot.host_problems == {"b": refused}


def test_the_busiest_moment_of_half_an_hour() -> None:
    history = _BusyHistory()
    assert isnan(history.add(0.0, 80.0))
    assert isnan(history.add(1799.0, 0.0))
    assert history.add(1800.0, 0.0) == 80.0
    assert history.add(1861.0, nan) == 0.0


def test_names_of_hosts(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# GPU hosts\nbox03  # the new one\n\nann@box04\nbox01\n")
    assert parse_hosts("box01, box02", file) == ["box01", "box02", "box03", "ann@box04"]
    for names in ("-oProxyCommand=x", "a b", "a;b", "", ",".join(f"box{number}" for number in range(65))):
        with pytest.raises(CommandError):
            parse_hosts(names, None)
    with pytest.raises(CommandError, match="cannot be read"):
        parse_hosts(None, tmp_path / "none")


def test_reasons_survive_the_codec() -> None:
    problems = {"b": Problem(ProblemCode.UNRESPONSIVE, "The host sends nothing.", "gpumon connects again.")}
    snapshot = FleetSnapshot(1.0, (), {}, ("b",), host_problems=problems)
    assert SnapshotDecoder().decode(SnapshotEncoder().encode(snapshot)) == snapshot
