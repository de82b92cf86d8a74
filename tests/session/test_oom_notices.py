"""Which process ran out of memory, on which device, and how long that is an alert."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.model import Device, Frame
from gpumon.operations.oom_files import OomDevice, oom_device
from gpumon.session.oom_notices import OOM_ALERT_SECONDS, OomNotices
from gpumon.session.probe_registry import ProbeRegistry
from tests import builders
from tests.insight import oom_documents
from tests.ui.probing import BEGAN, GIB, PID, FakeWatcher, moment, probe, silent, statistics

NOW = 1_800_000_000
GPU = builders.device(0)


def frame_after(seconds: float, *devices: Device) -> Frame:
    return replace(moment(0.0, *(devices or (GPU,))), time_seconds=NOW + seconds)


def notices_for(key: str | None) -> OomNotices:
    return OomNotices(lambda _, __: key, lambda: None, lambda work, then: then(work()))


@pytest.mark.parametrize(
    ("raw", "device"),
    [
        (oom_documents.FULL, OomDevice(0, "GPU-1b2c")),
        ({"kind": "gpumon-oom", "device": {"ordinal": 3}}, OomDevice(3, None)),
        ({"device": {"ordinal": -1}}, None),
        ({"device": {"uuid": "GPU-1"}}, None),
        ({"device": [1]}, None),
        (b"not compressed", None),
        (b"\x1f\x8bdamaged", None),
        (b"", None),
    ],
)
def test_the_device_of_a_file(tmp_path: Path, raw: Any, device: OomDevice | None) -> None:  # noqa: ANN401
    assert oom_device(str(oom_documents.write(tmp_path, raw))) == device


def test_a_file_that_is_gone_names_no_device(tmp_path: Path) -> None:
    assert oom_device(str(tmp_path / "oom-1-2-3.json.gz")) is None


def test_every_file_is_read_once_and_the_newest_notices_are_kept() -> None:
    reads: list[object] = []

    def read(work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        reads.append(work)
        then(None)

    notices = OomNotices(lambda _, __: None, lambda: None, read)
    paths = [f"/tmp/oom-{NOW + number}-7-{number}.json.gz" for number in range(30)]
    for _ in range(3):
        notices.add(7, [*paths, "/tmp/other"])
    assert len(reads) == 30
    assert [notice.number for notice in notices.notices] == list(range(10, 30))


def test_the_newest_of_a_process_is_its_alert_for_an_hour() -> None:
    notices = notices_for(GPU.key)
    notices.add(7, [f"/tmp/oom-{NOW}-7-1.json.gz", f"/tmp/oom-{NOW + 60}-7-2.json.gz"])
    notices.add(8, [f"/tmp/oom-{NOW + 30}-8-1.json.gz"])
    findings = list(notices.findings(frame_after(100)))
    assert {
        (device.index if device else None, finding.subject, finding.age_seconds) for device, finding in findings
    } == {(0, "PID 7 #2", 40.0), (0, "PID 8", 70.0)}
    assert [finding.subject for _, finding in notices.findings(frame_after(OOM_ALERT_SECONDS + 31))] == ["PID 7 #2"]
    assert not list(notices.findings(frame_after(OOM_ALERT_SECONDS + 61)))


@pytest.mark.parametrize(
    ("device", "key"),
    [
        ({"ordinal": 1, "uuid": builders.device(1).uuid}, builders.device(1).key),
        ({"ordinal": 0}, GPU.key),
        ({"ordinal": 5}, GPU.key),
        ({"ordinal": 5, "uuid": "GPU-unknown"}, GPU.key),
    ],
    ids=["by UUID", "by ordinal", "the only one", "a UUID that no frame has"],
)
def test_the_device_is_found_by_what_is_known(
    watcher: FakeWatcher, tmp_path: Path, device: dict[str, Any], key: str
) -> None:
    registry = ProbeRegistry(lambda: watcher, lambda: None, lambda work, then: then(work()))
    registry.start()
    watcher.inbox.put(probe(PID, statistics()))
    registry.drain()
    held = (builders.process(PID, memory_bytes=GIB),)
    registry.observe(moment(0.0, builders.device(0, processes=held), builders.device(1)))
    path = oom_documents.write(tmp_path, {"device": device}, f"oom-{NOW}-{PID}-1.json.gz")
    watcher.inbox.put(probe(PID, statistics(), at=BEGAN + 1, oom_files=(str(path),)))
    assert registry.drain(), "it is drawn at once"
    assert [notice.device_key for notice in registry.state().ooms] == [key]
    watcher.inbox.put(silent(probe(PID, statistics())))
    registry.drain()
    assert len(registry.state().ooms) == 1
