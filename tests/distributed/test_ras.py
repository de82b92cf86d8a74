"""NCCL's RAS service: its protocol and its report, and whom gpumon asks when."""

import json
import os
import struct
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.problems import ProblemCode
from gpumon.distributed.environment import JobRank, TrainingJob
from gpumon.distributed.ras_client import RasError, is_listening, read_report, socket_address
from gpumon.distributed.ras_poller import MIN_LISTENING_SECONDS, POLL_SECONDS, RasPoller, nccl_version
from gpumon.distributed.ras_report import parse_report
from tests.distributed.ras_server import FakeRank, FakeService, report_json, serving

TICKS = os.sysconf("SC_CLK_TCK")
RANKS = (FakeRank(0, 100, all_reduces=51), FakeRank(1, 101), FakeRank(2, 100, host="10.0.0.2", all_reduces=7))


def test_a_report() -> None:
    service = FakeService(report_json(RANKS))
    with serving(service) as address:
        report = read_report(address)
    assert service.commands == ["CLIENT PROTOCOL 2", "TIMEOUT 3", "SET FORMAT json", "VERBOSE STATUS"]
    (communicator,) = report.communicators
    assert (report.version, communicator.size, report.is_initializing) == ("2.28.9+cuda13.0", 3, False)
    assert report.counts_of({100: 0, 101: 1}) == {
        100: {**dict(communicator.ranks[0].counts)},
        101: {**dict(communicator.ranks[1].counts)},
    }
    assert communicator.ranks[0].counts["AllReduce"] == 51  # and not that of PID 100 on the other host
    assert not report.includes({4711: 0})


@pytest.mark.parametrize(
    ("service", "code"),
    [
        (FakeService(b"", b"HTTP/1.1 400 Bad Request\r\n"), ProblemCode.INVALID_VALUE),
        (FakeService(b"", b"x" * 5000), ProblemCode.DAMAGED),
        (FakeService(b""), ProblemCode.DAMAGED),
        (FakeService(b'{"communicators": 5}'), ProblemCode.DAMAGED),
        (FakeService(b"[" * 5000), ProblemCode.DAMAGED),
        (FakeService(report_json(RANKS)[:-300]), ProblemCode.DAMAGED),
    ],
)
def test_another_program_on_the_port(service: FakeService, code: ProblemCode) -> None:
    with serving(service) as address, pytest.raises(RasError) as raised:
        read_report(address, 2.0)
    assert raised.value.problem.code is code


def test_a_service_that_is_too_old_silent_or_absent() -> None:
    service = FakeService(report_json(RANKS))
    service.has_json = False
    with serving(service) as address, pytest.raises(RasError, match=r"before 2\.28\.7"):
        read_report(address)
    service = FakeService(report_json(RANKS))
    service.stays_open = True
    begun = time.monotonic()
    with serving(service) as address, pytest.raises(RasError, match=r"no report within 0\.3 s"):
        read_report(address, 0.3)
    assert time.monotonic() - begun < 5
    with pytest.raises(RasError):
        read_report(address, 0.3)


KEYS = ("communicators", "ranks", "missing_ranks", "rank", "pid", "size", "status", "collective_counts", "ras")
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
DOCUMENTS = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(KEYS), inner), max_leaves=20
)


@given(DOCUMENTS)
def test_any_document_is_a_report_or_is_refused(document: object) -> None:
    with suppress(ValueError):
        parse_report(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("", ("localhost", 28028)),
        ("0.0.0.0:1234", ("127.0.0.1", 1234)),
        ("[::]:99", ("::1", 99)),
        ("[fe80::1]:99", ("fe80::1", 99)),
        ("10.1.2.3:28100", ("10.1.2.3", 28100)),
        ("box.example.com:28028", None),
        ("localhost:70000", None),
        ("localhost", None),
        ("; rm -rf /:1", None),
    ],
)
def test_addresses(address: str, expected: tuple[str, int] | None) -> None:
    if expected is not None:
        assert socket_address(address) == expected
    else:
        with pytest.raises(RasError):
            socket_address(address)


def test_a_port_counts_only_if_its_owner_is_the_user_of_the_job() -> None:
    with serving(FakeService(b"")) as address:
        port = int(address.rpartition(":")[2])
        assert is_listening(port, {os.getuid()})
        assert not is_listening(port, {os.getuid() + 1})
    assert not is_listening(port, {os.getuid()})


def library(path: Path, data: bytes) -> None:
    """Write a library with a section of code for GPUs and a section of read-only data."""
    names = b"\0.nv_fatbin\0.rodata\0.shstrtab\0"
    sections = [
        (b"", b""),
        (b".nv_fatbin", b"NCCL version 9.9.9" + bytes(5000)),
        (b".rodata", data),
        (b".shstrtab", names),
    ]
    body, headers = b"", b""
    for name, content in sections:
        position = names.index(name) if name else 0
        headers += struct.pack("<IIQQQQIIQQ", position, 1, 0, 0, 64 + len(body), len(content), 0, 0, 1, 0)
        body += content
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = struct.pack("<16sHHIQQQIHHHHHH", ident, 3, 62, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, len(sections), 3)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header + body + headers)


@pytest.mark.parametrize(
    ("name", "data", "version"),
    [
        ("libnccl.so.2", b"x\0NCCL version 2.28.9+cuda13.0\0", (2, 28, 9)),
        ("libnccl.so.2.21.5", b"", (2, 21, 5)),
        ("libnccl.so.2", b"nothing", None),
    ],
)
def test_the_version_of_a_mapped_library(
    tmp_path: Path, name: str, data: bytes, version: tuple[int, int, int] | None
) -> None:
    path = tmp_path / "lib" / name
    library(path, data)
    folder = tmp_path / "proc" / "100"
    folder.mkdir(parents=True)
    (folder / "root").symlink_to("/")
    (folder / "maps").write_text(f"7f00-7f01 r-xp 0 08:01 42    /lib/libc.so.6\n7f01-7f02 r-xp 0 08:01 43    {path}\n")
    assert nccl_version(100, tmp_path / "proc") == version
    assert nccl_version(101, tmp_path / "proc") is None
    path.write_bytes(b"\x7fELF\x02garbage")
    assert nccl_version(100, tmp_path / "proc") in {None, (2, 21, 5)}


def job(address: str, age_seconds: float = 1000.0, **changes: object) -> TrainingJob:
    started = int((time.clock_gettime(time.CLOCK_BOOTTIME) - age_seconds) * TICKS)
    ranks = tuple(JobRank(100 + rank, started, rank, rank) for rank in range(2))
    return TrainingJob("x", os.getuid(), "me", "torchrun", 2, ranks, ras_address=address)._replace(**changes)  # type: ignore[arg-type]


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> dict[int, tuple[int, int, int]]:
    known = {100: (2, 28, 9)}
    monkeypatch.setattr("gpumon.distributed.ras_poller.nccl_version", lambda pid, _: known.get(pid))
    return known


def test_a_job_is_asked_about_rarely_and_not_before_its_service_was_seen_for_some_time(
    versions: dict[int, tuple[int, int, int]],
) -> None:
    service = FakeService(report_json(RANKS))
    poller = RasPoller()
    with serving(service) as address:
        training = job(address)
        assert poller.poll([training], 0.0)["0/x" if os.getuid() == 0 else training.key].report is None
        now = MIN_LISTENING_SECONDS + 1
        assert poller.poll([training], now)[training.key].report is not None
        for step in range(10):
            assert poller.poll([training, job(address, id="y")], now + step * 0.9)[training.key].report is not None
        assert service.connections == 1
        poller.poll([training], now + POLL_SECONDS + 1)
        assert (service.connections, service.open_at_once) == (2, 1)


@pytest.mark.parametrize(
    ("changes", "version", "reason"),
    [
        ({"has_ras": False}, (2, 28, 9), "NCCL_RAS_ENABLE"),
        ({"age_seconds": 60.0}, (2, 28, 9), "too young"),
        ({}, (2, 26, 2), "2.26.2"),
        ({}, (2, 28, 3), "2.28.3"),
        ({}, None, "has not loaded NCCL"),
        ({"uid": 12345}, (2, 28, 9), "only about jobs of the user" if os.geteuid() else "No NCCL of this user"),
    ],
)
def test_who_is_not_asked(
    versions: dict[int, tuple[int, int, int] | None],
    changes: dict[str, float],
    version: tuple[int, int, int] | None,
    reason: str,
) -> None:
    versions[100] = version
    service = FakeService(report_json(RANKS))
    with serving(service) as address:
        training = job(address, **changes)
        answer = RasPoller().poll([training], 1000.0, 0.0)[training.key]
    assert answer.problem is not None
    assert reason in answer.problem.reason
    assert service.connections == 0


def test_a_process_alone_is_not_asked_about() -> None:
    assert not RasPoller().poll([job("", world_size=1, ranks=job("").ranks[:1])], 1000.0, 0.0)
