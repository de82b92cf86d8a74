"""The devices that the form for a workload offers."""

from gpumon.core.model import DeviceState
from gpumon.core.problems import Problem, ProblemCode
from gpumon.present.device_choices import cpu_choice, gpu_choices
from gpumon.workload_runs.supervised_run import RunEnded
from tests import builders, runs
from tests.present.split import split_frame

SHARED = Problem(ProblemCode.MEMORY_SHARED, "This GPU has no separate memory.")


def test_instances_are_offered_and_their_gpu_is_not() -> None:
    choices = gpu_choices(split_frame().devices, ())
    assert [choice.is_free for choice in choices] == [True, False, True, True]
    assert choices[1].refusal == "MIG is enabled on GPU 1: choose one of its instances."
    assert choices[1].label.endswith("MIG enabled")
    assert choices[2].label.startswith("GPU 1:0  └ 1g.18gb  17.0 of 18.0 GiB free")


def test_a_gpu_that_does_not_respond_is_refused() -> None:
    silent = split_frame(state=DeviceState.UNRESPONSIVE)
    assert gpu_choices(silent.devices, ())[1].refusal == "GPU 1 is unresponsive."
    unnamed = builders.device(0, uuid=None)
    assert gpu_choices((unnamed,), ())[0].refusal == "GPU 0 is not usable: its UUID is unknown."


def test_a_label_counts_processes_and_marks_shared_memory() -> None:
    two = (builders.process(1), builders.process(2))
    shared = builders.device(0, processes=two, problems={"memory_reserved_bytes": SHARED})
    first, second, third = gpu_choices((shared, builders.device(1), builders.device(2, processes=())), ())
    assert first.label.endswith("free, shared with the host, 2 processes")
    assert second.label.endswith("free, 1 process")
    assert third.label.endswith("free")


def test_a_device_with_a_running_workload_is_busy_until_it_ends() -> None:
    devices, run = builders.frame().devices, runs.new_run(gpu=0)
    busy, free = gpu_choices(devices[:2], [run])
    assert (busy.is_free, free.is_free) == (False, True)
    assert "busy with matmul" in busy.refusal
    run.state.apply(RunEnded(0, False, ""))
    assert gpu_choices(devices[:1], [run])[0].is_free


def test_the_cpu_is_offered_unless_the_workload_needs_a_gpu() -> None:
    choice = cpu_choice(runs.workload(), ())
    assert (choice.key, choice.label, choice.is_free) == ("cpu", "CPU", True)
    refused = cpu_choice(runs.workload(why_not_cpu="It needs CUDA."), ())
    assert (refused.is_free, refused.refusal) == (False, "It needs CUDA.")
    assert not cpu_choice(runs.workload(), [runs.new_run(gpu=None)]).is_free
