"""The tables of `gpumon last` and `gpumon jobs --ended`."""

from gpumon.operations.recorder.events import EndedJob
from gpumon.present.text.ended import ENDED_COLUMNS, LAST_COLUMNS, ended_lines, user_sums

TRAINING = EndedJob(
    user="ada", job="slurm 4711", program="pretrain", processes=8, gpus=("0", "1"), begin_seconds=1e9,
    end_seconds=1e9 + 3600, gpu_hours=2.0, idle_gpu_hours=0.5, utilization_percent=80.0, sm_percent=None,
    peak_bytes=64 * 2**30, memory_percent=40.0, how="exit 1, rank 5 first",
)  # fmt: skip
NOTEBOOK = TRAINING._replace(job="", program="notebook", gpu_hours=6.0, utilization_percent=20.0, how="ended")


def test_each_job_and_the_sums_of_its_user() -> None:
    lines = ended_lines([TRAINING, NOTEBOOK], user_sums([TRAINING, NOTEBOOK]), ENDED_COLUMNS, 120)
    assert lines[0].split() == [
        *("User", "Program", "Job", "GPUs", "GPU-hours", "Util", "SM", "Idle", "GPU-hours", "Memory")
    ]
    assert lines[1].split() == ["ada", "pretrain", "slurm", "4711", "0,1", "2.00", "80%", "–", "0.50", "40%"]
    assert lines[-1].split() == ["ada", "2", "8.00", "35%", "–", "1.00"], "the mean counts GPU-hours"


def test_what_ended_and_how() -> None:
    (heading, line) = ended_lines([TRAINING], [], LAST_COLUMNS, 120)
    assert heading.split()[0] == "Ended"
    assert line.endswith("exit 1, rank 5 first")
    assert "64.0 GiB" in line
    narrow = ended_lines([TRAINING], [], LAST_COLUMNS, 80)
    assert all(len(line) <= 80 for line in narrow)
    assert "exit 1" in narrow[1], "how it ended is kept before how much memory it had"
    assert ended_lines([], [], LAST_COLUMNS, 80) == ["Nothing that used a GPU has ended in this time."]
