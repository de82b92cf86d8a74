"""A step ends when its work on the GPU is done, also when the program is several steps ahead of the GPU."""

from tests.traces.maker import GEMM, TraceMaker, times


def ahead(steps: int, recorded: int) -> TraceMaker:
    """A program that launches a step each 10 µs, where the GPU takes 100 µs; the trace has the first ones' work."""
    maker = TraceMaker()
    for number in range(steps):
        maker.step(number, 10 * number, 10)
        if number < recorded:
            maker.work(GEMM, 5 + 100 * number, 100, launched=1 + 10 * number)
        else:
            maker.call("cudaLaunchKernel", 1 + 10 * number, 4, correlation=1000 + number)
    return maker


def test_a_step_takes_as_long_as_its_work_where_the_program_is_ahead() -> None:
    trace = ahead(6, recorded=6).trace()
    assert [step.end_ns - step.begin_ns for step in trace.steps] == [105_000, *[100_000] * 5]
    assert times(trace) == {"tensor_cores": 100}
    assert trace.kernels == 1
    assert "work on the GPU was done" in trace.step_source
    assert trace.problems == ()


def test_steps_whose_work_is_not_in_the_trace_are_left_out() -> None:
    trace = ahead(6, recorded=3).trace()
    assert [step.label for step in trace.steps] == ["step 0", "step 1", "step 2"]
    assert trace.problems == ()


def test_there_is_no_verdict_if_the_work_of_no_step_is_complete() -> None:
    maker = TraceMaker()
    maker.work(GEMM, 2, 5, launched=1)
    for number in range(3):
        maker.step(number, 10 + 10 * number, 10)
        maker.call("cudaLaunchKernel", 11 + 10 * number, 4, correlation=1000 + number)
    assert maker.trace().problems[-1].startswith("No step is complete")


def test_work_that_was_launched_before_the_trace_began_belongs_to_no_step() -> None:
    maker = TraceMaker()
    maker.work(GEMM, 0, 500)
    for number in range(3):
        maker.step(number, 10 * number, 10)
        maker.work(GEMM, 500 + 100 * number, 100, launched=1 + 10 * number)
    assert [step.end_ns - step.begin_ns for step in maker.trace().steps] == [100_000] * 3


def test_a_program_that_waits_for_the_gpu_keeps_its_steps() -> None:
    maker = TraceMaker()
    for number in range(3):
        maker.step(number, 100 * number, 100)
        maker.work(GEMM, 5 + 100 * number, 60, launched=1 + 100 * number)
        maker.call("cudaStreamSynchronize", 10 + 100 * number, 60)
    trace = maker.trace()
    assert [(step.begin_ns, step.end_ns) for step in trace.steps] == [
        (n * 100_000, (n + 1) * 100_000) for n in range(3)
    ]
    assert trace.step_source == "annotations of torch.profiler (ProfilerStep)"
