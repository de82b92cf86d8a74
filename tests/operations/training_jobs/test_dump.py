"""The files for a bug report: what they contain, and what they do not."""

import gzip
import json
from pathlib import Path

import pytest

from gpumon.core.collectives import FlightRecording
from gpumon.core.problems import CommandError
from gpumon.core.ranks import RankEvidence
from gpumon.core.stacks import StackFrame, ThreadStack
from gpumon.distributed.ras_poller import RasAnswer
from gpumon.distributed.ras_report import parse_report
from gpumon.operations.training_jobs import dump
from gpumon.operations.training_jobs.watcher import JobsReading, JobsSample
from tests import builders
from tests.distributed.ras_server import FakeRank, report_json
from tests.training_jobs import HANGING, collective

FRAME = StackFrame("/home/ada/secret-project/train.py", 214, "evaluate")
LIBRARY = StackFrame("/home/ada/env/lib/python3.12/site-packages/torch/optim/adamw.py", 9, "step")
EVIDENCE = RankEvidence(
    3,
    pid=28543,
    state_code="R",
    stack=(LIBRARY, FRAME),
    recording=FlightRecording((), (collective(7),), is_recording=True),
)
REPORT = parse_report(report_json([FakeRank(0, 28540, "10.20.30.40")]))


@pytest.fixture
def sample(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = JobsReading((HANGING,), True, {HANGING.key: (EVIDENCE,)}, {HANGING.key: RasAnswer(REPORT)})
    stacks = {28543: (ThreadStack("pin_memory", False, (FRAME,)),)}
    monkeypatch.setattr(dump, "sample_jobs", lambda *, wants_stacks: JobsSample(reading, None, (), stacks))


def test_a_dump_has_everything_but_names(tmp_path: Path, sample: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump, "_record_frames", lambda path, seconds: [])
    result = dump.dump_jobs(tmp_path / "dump")
    texts = {name: (tmp_path / "dump" / name).read_text() for name in result.files}
    assert set(texts) == {"jobs.json", "stacks.txt", "flight_recorder.json", "ras.json"}
    assert "train.py:214 evaluate" in texts["stacks.txt"]
    assert "torch/optim/adamw.py:9 step" in texts["stacks.txt"]
    assert "pin_memory:" in texts["stacks.txt"]
    assert json.loads(texts["flight_recorder.json"])[0]["recording"]["collectives"][0]["sequence"] == 7
    assert "Rank 3 has not entered all_reduce #288686" in texts["jobs.json"]
    assert '"AllReduce": 50' in texts["ras.json"]
    complete = "".join(texts.values())
    assert [word for word in ("secret-project", "/home/ada", '"ada"', "10.20.30.40") if word in complete] == []
    assert "1 x user" in result.removed
    assert (tmp_path / "dump").stat().st_mode & 0o777 == 0o700


def test_nothing_is_overwritten(tmp_path: Path, sample: None) -> None:
    with pytest.raises(CommandError, match="file exists"):
        dump.dump_jobs(tmp_path)


def test_frames_are_recorded_where_there_is_a_driver(tmp_path: Path, sample: None) -> None:
    result = dump.dump_jobs(tmp_path / "dump", frames_seconds=1.0)
    assert set(result.files) >= {"jobs.json", "stacks.txt"}  # this host may have no driver


def test_frames_that_a_running_gpumon_has_are_written_without_names(tmp_path: Path, sample: None) -> None:
    moments = [builders.frame(monotonic_seconds=100.0 + second) for second in range(60)]
    result = dump.dump_jobs(tmp_path / "dump", frames=moments)
    assert dump.FRAMES_FILE in result.files
    text = gzip.decompress((result.folder / dump.FRAMES_FILE).read_bytes()).decode()
    assert len([line for line in text.splitlines() if '"devices"' in line]) == 60
    assert "ada" not in text
    assert "node7" not in text


def test_a_host_without_a_driver_has_no_frames(tmp_path: Path, sample: None) -> None:
    result = dump.dump_jobs(tmp_path / "dump", frames=())
    assert dump.FRAMES_FILE not in result.files
