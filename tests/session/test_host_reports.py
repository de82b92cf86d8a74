"""Recordings keep what probes and training jobs report."""

from dataclasses import replace

from gpumon.core.allocator import AllocatorStatistics, PoolBytes, ProbedProcess, ProbeReading, ProbeState
from gpumon.core.frames import decode, encode
from gpumon.core.ranks import HangKind, HangVerdict
from gpumon.core.steps import StepProgress
from gpumon.operations.record import Anonymizer
from gpumon.operations.training_jobs.report import RankGpu, RankReport, TrainingJobReport, TrainingJobState
from gpumon.probe.messages import Probe, RequestKind
from gpumon.session.frame_session import FrameSession
from gpumon.session.host_reports import reports_document
from gpumon.session.view_state import OomNotice
from tests.builders import device, frame
from tests.streams.test_record import FakeStream

GPU = device(0)
STATISTICS = AllocatorStatistics(0, 5 << 30, 6 << 30, uuid=GPU.uuid, small_pool=PoolBytes(1, 2, 1, 0))
PROBE = Probe(
    ProbedProcess(4000, 4000, "python /home/ada/train.py --lr 3", "3.12.3", 1, 1, 2, {"PYTORCH_ALLOC_CONF": "x"}),
    ProbeReading(ProbeState.LIVE, 99.5, devices=(STATISTICS,), training=StepProgress(70, 80, 99.0, 0.25)),
    99.75,
)
VERDICT = HangVerdict(HangKind.WAITING_FOR_LOCK, True, "Rank 1 waits for a lock at train.py:7.", 1, since_seconds=40.0)
JOB = TrainingJobReport(
    "ada/1", "1", "train", "ada", "torchrun", 2, TrainingJobState.HANGING, 40.0,
    ranks=(RankReport(1, "", 4000, (RankGpu("0", GPU.uuid),), is_culprit=True),), verdict=VERDICT,
)  # fmt: skip
OOM = OomNotice(4000, "/home/ada/oom-1.json", 1_799_999_990.0, device_key=GPU.key)


def test_a_recording_replays_probes_jobs_and_out_of_memory_deaths_later() -> None:
    recorded = frame()
    recorded = replace(recorded, reports=reports_document(recorded, {4000: PROBE}, [JOB], [OOM]))
    read = decode(encode(Anonymizer().apply(recorded)))
    later = replace(read, monotonic_seconds=read.monotonic_seconds + 50, time_seconds=read.time_seconds + 50)
    session = FrameSession(FakeStream([later]))
    session.stream.start()
    session.drain()
    assert session.recorded is not None
    state = session.recorded.registry.state()
    probe = state.probes[4000]
    assert probe.reading is not None
    assert probe.reading.training == StepProgress(70, 80, 149.0, 0.25)
    assert probe.age_seconds(later.monotonic_seconds) == 0.25
    key = later.devices[0].key
    assert probe.reading.devices == (replace(STATISTICS, uuid=key),)
    assert list(state.histories) == [(4000, key)]
    assert [(notice.device_key, notice.time_seconds) for notice in state.ooms] == [(key, 1_800_000_040.0)]
    jobs = session.recorded.jobs
    assert jobs is not None
    assert jobs.reports[0].verdict == VERDICT
    view = session.view_state()
    assert view is not None
    alerts = {alert.id for alert in view.alerts if alert.id in {"job_hangs", "out_of_memory"}}
    assert alerts == {"job_hangs", "out_of_memory"}
    assert "ada" not in encode(read)
    assert session.recorded.registry.refusal(probe)
    assert session.recorded.ask(4000, RequestKind.SEGMENTS)


def test_damaged_reports_are_left_out() -> None:
    recorded = frame()
    document = reports_document(recorded, {4000: PROBE}, [JOB], [])
    document["probes"][0]["process"]["pid"] = "4000"
    document["jobs"] = 7
    session = FrameSession(FakeStream([replace(recorded, reports=document)]))
    session.stream.start()
    session.drain()
    assert session.recorded is not None
    assert not session.recorded.registry.state().probes
