"""Causes on the GPU and on the way to it: synchronization, launches, copies, precision, memory, clocks, other users."""

from typing import Final

from gpumon.core.step_classes import COMPUTE, COPIES, GPU_WORK, HOST, IDLE, MEMORY, SIMT, SYNC
from gpumon.core.throttle_reasons import CLOCK_SETTINGS, POWER_CAP, main_fault
from gpumon.core.units import bytes_text, counted, short_time_text
from gpumon.insight.bottlenecks.cause import Finding, main_kind, main_line, where_text
from gpumon.insight.bottlenecks.slowness_evidence import SlownessEvidence
from gpumon.traces.kinds import COPYING

_MIN_BENCHMARK_SECONDS: Final = 0.02
_BENCHMARK_SHARE: Final = 0.3
_SMALL_KERNEL_SECONDS: Final = 10e-6
"""A kernel that is shorter than this takes less time than its launch."""
_TENSOR_RATIO: Final = 4.0
"""Matrix products on tensor cores are at least this much faster than in fp32 without them."""
_BF16_RATIO: Final = 2.0
"""A product in bf16 takes half the time of one in TF32, by the data sheets."""
_OTHER_MIN: Final = 0.1
_MAX_OTHERS: Final = 0.95
"""Processes take turns on a GPU: what others have of its time, a step takes longer. NVML's shares do not add up to
100 %, so the part of the others is between their share and their part of all shares."""
_MIN_TINY_COPIES: Final = 30
_TINY_BYTES: Final = 64 << 10
_LOW_CLOCK: Final = 0.75
"""Below this, clocks are low even for a GPU at its power cap."""
_FAULT_CLOCK: Final = 0.95
_HIGH_SM: Final = 0.6
_NO_TENSOR: Final = 0.01
_HIGH_FP32: Final = 0.2
_HIGH_DRAM: Final = 0.6
_SYNC_EXPERIMENTS: Final = {
    "item_per_step": "Keep the value on the GPU, and read it every 100 steps instead of each step.",
    "print": "Print tensors every 100 steps instead of each step.",
    "synchronize": "Remove torch.cuda.synchronize() from the loop.",
    "copies": "Copy results to the host every 100 steps, or with non_blocking=True to pinned memory.",
}


def _work_seconds(evidence: SlownessEvidence) -> float:
    return sum(evidence.account.share_of(name).seconds for name in (*COMPUTE, GPU_WORK))


def _retries(evidence: SlownessEvidence) -> Finding | None:
    gpu, account, trace = evidence.gpu, evidence.account, evidence.trace
    if gpu is None or not gpu.retries_count:
        return None
    lost = sum(account.share_of(name).seconds for name in (SYNC, HOST, IDLE))
    seconds = lost if trace is None or not trace.free_seconds else min(lost, trace.free_seconds)
    per_step = gpu.retries_count / max(1, account.steps_count)
    text = (
        f"the allocator freed its cache {per_step:.1f} times per step and asked the driver again, because the memory "
        f"was {gpu.memory_used_share or 0.0:.0%} full"
    )
    return Finding(seconds, text)


def _freeing(evidence: SlownessEvidence) -> Finding | None:
    trace, gpu = evidence.trace, evidence.gpu
    if trace is None or not trace.free_seconds or (gpu is not None and gpu.retries_count):
        return None
    text = f"cudaFree and cudaMalloc take {short_time_text(trace.free_seconds)} per step, as after empty_cache()"
    return Finding(trace.free_seconds, text)


def _synchronization(evidence: SlownessEvidence) -> Finding | None:
    share = evidence.account.share_of(SYNC)
    is_known = evidence.account.is_traced or (evidence.gpu is not None and evidence.gpu.utilization_share is not None)
    if evidence.gpu is None or not is_known or not share.cost_seconds or _is_freeing(evidence):
        return None
    if _tiny_copies(evidence) is not None:
        return None
    text = f"the GPU is idle after calls that wait for it{where_text(share)}"
    experiment = _SYNC_EXPERIMENTS.get(main_kind(share), _SYNC_EXPERIMENTS["item_per_step"])
    return Finding(share.cost_seconds, text, main_line(share), experiment=experiment)


def _is_freeing(evidence: SlownessEvidence) -> bool:
    """Whether the waits for the GPU are mostly those of allocations, which have their own cause."""
    trace, share = evidence.trace, evidence.account.share_of(SYNC)
    return trace is not None and trace.free_seconds >= 0.5 * share.seconds > 0


def _benchmarking(evidence: SlownessEvidence) -> Finding | None:
    """A convolution is launched in microseconds, unless cuDNN measures its algorithms first."""
    seconds = _convolution_seconds(evidence)
    if seconds < max(_MIN_BENCHMARK_SECONDS, _BENCHMARK_SHARE * evidence.account.step_seconds):
        return None
    share = evidence.account.share_of(HOST)
    text = "the GPU waits while cudnn.benchmark measures the algorithms of convolutions for each new shape"
    return Finding(share.cost_seconds, text, main_line(share))


def _convolution_seconds(evidence: SlownessEvidence) -> float:
    """Time per step in which the GPU waited while the host was in a convolution; 0 without a trace."""
    calls = {} if evidence.trace is None else evidence.trace.calls
    return sum(seconds for name, seconds in calls.items() if "convolution" in name.lower())


def _small_kernels(evidence: SlownessEvidence) -> Finding | None:
    share, trace = evidence.account.share_of(HOST), evidence.trace
    if not share.cost_seconds or evidence.gpu is None or _benchmarking(evidence) is not None:
        return None
    if trace is not None and trace.median_kernel_seconds is not None:
        if trace.median_kernel_seconds >= _SMALL_KERNEL_SECONDS:
            return None
        median = short_time_text(trace.median_kernel_seconds)
        text = f"{counted(trace.kernels_count, 'kernel')} with a median of {median}, which is less than a launch takes"
        return Finding(share.cost_seconds, text, main_line(share))
    if evidence.account.is_traced:
        return None
    text = f"the GPU is idle while the main thread launches kernels{where_text(share)}"
    return Finding(share.cost_seconds, text, main_line(share))


def _host(evidence: SlownessEvidence) -> Finding | None:
    share, trace = evidence.account.share_of(HOST), evidence.trace
    if trace is None or not evidence.account.is_traced or not share.cost_seconds:
        return None
    if trace.median_kernel_seconds is None or trace.median_kernel_seconds < _SMALL_KERNEL_SECONDS:
        return None
    if _benchmarking(evidence) is not None:
        return None
    top = share.top[0].name if share.top else "Python"
    line = main_line(share)
    text = f"the GPU waits for the next launch, mostly {top}{f' at {line}' if line else ''}"
    return Finding(share.cost_seconds, text, line)


def _tiny_copies(evidence: SlownessEvidence) -> Finding | None:
    """Numbers that are sent to the GPU one at a time: each copy from pageable memory waits for the GPU."""
    account, trace = evidence.account, evidence.trace
    if trace is None or trace.sent_count < _MIN_TINY_COPIES or trace.sent_bytes > trace.sent_count * _TINY_BYTES:
        return None
    seconds = sum(account.share_of(name).cost_seconds for name in (COPIES, SYNC))
    seconds += sum(time for name, time in trace.calls.items() if name in COPYING)
    mean = bytes_text(round(trace.sent_bytes / trace.sent_count))
    lines = (main_line(account.share_of(name)) for name in (COPIES, SYNC, HOST))
    text = f"{counted(trace.sent_count, 'copy')} of {mean} on average to the GPU"
    bound = max(account.step_seconds - seconds, _work_seconds(evidence))
    return Finding(seconds, text, next((line for line in lines if line), ""), bound_seconds=bound)


def _copies(evidence: SlownessEvidence) -> Finding | None:
    share, trace = evidence.account.share_of(COPIES), evidence.trace
    if not share.cost_seconds or (trace is not None and trace.pageable_copy_seconds >= 0.5 * share.cost_seconds):
        return None
    size = "" if trace is None or not trace.copied_bytes else f" {bytes_text(trace.copied_bytes)} in"
    count = "" if trace is None else f" {counted(trace.copies_count, 'copy')}"
    text = f"the GPU only copies{size}{count}{where_text(share)}"
    return Finding(share.cost_seconds, text, main_line(share))


def _pageable(evidence: SlownessEvidence) -> Finding | None:
    share, trace = evidence.account.share_of(COPIES), evidence.trace
    if trace is None or not share.cost_seconds or trace.pageable_copy_seconds < 0.5 * share.cost_seconds:
        return None
    text = f"copies of {bytes_text(trace.copied_bytes)} from pageable memory{where_text(share)}"
    return Finding(share.cost_seconds, text, main_line(share))


def _no_tf32(evidence: SlownessEvidence) -> Finding | None:
    account, gpu = evidence.account, evidence.gpu
    share = account.share_of(SIMT)
    if account.is_traced:
        if not share.cost_seconds:
            return None
        saved = share.cost_seconds * (1 - 1 / _TENSOR_RATIO)
        text = f"matrix products in fp32 without tensor cores{where_text(share)}"
        return Finding(saved, text, main_line(share), bound_seconds=account.step_seconds - saved)
    if gpu is None or gpu.tensor_share is None or gpu.tensor_share > _NO_TENSOR or (gpu.sm_share or 0.0) < _HIGH_SM:
        return None
    if gpu.fp32_share is None or gpu.fp32_share < _HIGH_FP32:
        return None
    saved = _work_seconds(evidence) * (1 - 1 / _TENSOR_RATIO)
    text = f"tensor cores are idle, while the FP32 pipes are active in {gpu.fp32_share:.0%} of the time"
    return Finding(saved, text, bound_seconds=account.step_seconds - saved)


def _no_bf16(evidence: SlownessEvidence) -> Finding | None:
    trace, account = evidence.trace, evidence.account
    if trace is None or not trace.tf32_share:
        return None
    saved = trace.tf32_share * account.step_seconds * (1 - 1 / _BF16_RATIO)
    text = f"{trace.tf32_share:.0%} of the step are matrix products in TF32, and bf16 takes half the time"
    return Finding(saved, text, bound_seconds=account.step_seconds - saved)


def _memory_bound(evidence: SlownessEvidence) -> Finding | None:
    account, gpu = evidence.account, evidence.gpu
    share = account.share_of(MEMORY)
    if account.is_traced:
        seconds = 0.0 if evidence.trace is None else min(share.cost_seconds, evidence.trace.elementwise_seconds)
        if not seconds:
            return None
        text = f"elementwise kernels, which only move memory{where_text(share)}"
        return Finding(seconds, text, bound_seconds=account.step_seconds - seconds)
    if gpu is None or (gpu.dram_share or 0.0) < _HIGH_DRAM or gpu.tensor_share is None or gpu.tensor_share > 0.1:
        return None
    text = f"the memory bandwidth is {gpu.dram_share:.0%} in use, and tensor cores are active in {gpu.tensor_share:.0%}"
    seconds = _work_seconds(evidence) * (1 - gpu.tensor_share)
    return Finding(seconds, text, bound_seconds=account.step_seconds - seconds)


def _shared(evidence: SlownessEvidence) -> Finding | None:
    gpu = evidence.gpu
    others = 0.0 if gpu is None else sum(share for _, share in gpu.others)
    if gpu is None or others < _OTHER_MIN:
        return None
    step = evidence.account.step_seconds
    accounted = others + (gpu.own_sm_share or 0.0)
    seconds = min((others + others / max(accounted, others)) / 2, _MAX_OTHERS) * step
    names = ", ".join(f"{command} {share:.0%}" for command, share in gpu.others[:2])
    text = f"other processes use GPU {gpu.label}: {names}; this one {gpu.own_sm_share or 0.0:.0%}"
    return Finding(seconds, text, bound_seconds=step - seconds)


def _clocks(evidence: SlownessEvidence) -> Finding | None:
    gpu = evidence.gpu
    if gpu is None or gpu.clock_share is None:
        return None
    fault = main_fault(gpu.throttle_reasons)
    is_set = bool(CLOCK_SETTINGS & set(gpu.throttle_reasons))
    limit = _FAULT_CLOCK if fault is not None or is_set else _LOW_CLOCK
    if gpu.clock_share >= limit or not gpu.throttle_reasons or gpu.throttle_reasons == ("gpu_idle",):
        return None
    seconds = _work_seconds(evidence) * (1 - gpu.clock_share)
    if fault is not None:
        why, experiment = f"throttled by {fault.fault}", fault.fix
    elif is_set:
        why, experiment = "because a user has set the clocks", "Reset the clocks: nvidia-smi -rgc and -rac, as root."
    elif POWER_CAP in gpu.throttle_reasons and gpu.is_power_limit_lowered:  # at the usual limit, full load is normal
        why = f"at a power limit of {gpu.power_limit_watts:.0f} W instead of {gpu.tdp_watts:.0f} W"
        experiment = "Compare the power limit with the default: nvidia-smi -q -d POWER."
    else:
        return None
    text = f"the SM clock is {gpu.clock_share:.0%} of its maximum, {why}"
    return Finding(seconds, text, experiment=experiment)


DEVICE: Final = (
    *(_shared, _retries, _freeing, _tiny_copies, _synchronization, _benchmarking, _small_kernels, _host),
    *(_pageable, _copies, _no_tf32, _no_bf16, _memory_bound, _clocks),
)
"""The conditions, which causes.txt names."""
