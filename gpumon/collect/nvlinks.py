"""Reads the NVLinks of a GPU, and the rates that follow from two readings of their counters."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from gpumon.collect import nvml
from gpumon.collect.device import bus_id
from gpumon.collect.nvml import Handle, Nvml, ReadingError
from gpumon.collect.readers import Field, Value, invalid, read_fields
from gpumon.collect.schedule import NEEDS_TWO_SAMPLES
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.procfs import sysfs_bus_id
from gpumon.core.topology import GpuPair, LinkedGpu, NvLink

_MEGA: Final = 1_000_000
_HIDDEN_DOMAIN: Final = "FFFFFFFF:"
"""PCI domain of an NVSwitch that a virtual machine does not have on its bus."""
_HIDDEN_REMOTE: Final = Problem(ProblemCode.NOT_FOUND, "The NVSwitch is not on the PCI bus of this host.")
_LINK_DOWN: Final = Problem(ProblemCode.NOT_FOUND, "The link is down.")
_LINK_FIELDS: Final = (
    ("is_up", nvml.FIELD_NVLINK_STATE),
    ("bytes_per_second", nvml.FIELD_NVLINK_SPEED),
    ("replay_count", nvml.FIELD_NVLINK_REPLAYS),
    ("recovery_count", nvml.FIELD_NVLINK_RECOVERIES),
    ("crc_count", nvml.FIELD_NVLINK_CRC_ERRORS),
)
_COUNTERS: Final = (
    ("transmitted_bytes", "transmit_bytes_per_second", nvml.FIELD_NVLINK_TRANSMITTED),
    ("received_bytes", "receive_bytes_per_second", nvml.FIELD_NVLINK_RECEIVED),
)
"""The counters of a link, the rate that follows from each, and NVML's field, which counts KiB."""
_KIBIBYTE: Final = 1024
_MAX_KIBIBYTES: Final = 1 << 50
"""More than a link transfers in a thousand years."""
_RATE_SLACK: Final = 1.25
"""A rate may exceed that of the link by this factor: the two readings of a counter are not of exact moments."""


def read_links(api: Nvml, handle: Handle) -> tuple[NvLink, ...] | Problem:
    """The NVLinks that a GPU has, without their counters, or why they are unknown."""
    fields = [Field(number, link) for link in range(nvml.MAX_NVLINK_LINKS) for _, number in _LINK_FIELDS]
    try:
        values = read_fields(api, handle, fields)
    except ReadingError as error:
        return error.problem
    size = len(_LINK_FIELDS)
    by_link = [values[size * link : size * (link + 1)] for link in range(nvml.MAX_NVLINK_LINKS)]
    links = [
        _read_link(api, handle, number, answers)
        for number, answers in enumerate(by_link)
        if not (isinstance(answers[0], Problem) and isinstance(answers[1], Problem))
    ]
    first = by_link[0][0]
    return tuple(links) if links else first if isinstance(first, Problem) else ()


def _read_link(api: Nvml, handle: Handle, number: int, answers: Sequence[Value]) -> NvLink:
    values: dict[str, Any] = {}
    problems: dict[str, Problem] = {}
    for (field, _), answer in zip(_LINK_FIELDS, answers, strict=True):
        if isinstance(answer, Problem):
            problems[field] = answer
        else:
            values[field] = int(answer)
    speed = values.get("bytes_per_second")
    state = values.get("is_up", speed)  # some drivers report the rate only
    if state is not None:
        values["is_up"] = state > 0
        problems.pop("is_up", None)
    if speed is not None:
        values["bytes_per_second"] = speed * _MEGA
    if values["is_up"]:
        try:
            remote = bus_id(api.call("nvmlDeviceGetNvLinkRemotePciInfo", handle, number))
        except ReadingError as error:
            problems["remote_bus_id"] = error.problem
        else:
            if remote.startswith(_HIDDEN_DOMAIN):
                problems["remote_bus_id"] = _HIDDEN_REMOTE
            else:
                values["remote_bus_id"] = remote
    else:
        problems["remote_bus_id"] = _LINK_DOWN
    for counter, rate, _ in _COUNTERS:
        problems[counter] = problems[rate] = NEEDS_TWO_SAMPLES
    return NvLink(number, **values, problems=problems)


def read_counters(api: Nvml, handle: Handle, links: Sequence[NvLink]) -> list[Value]:
    """The counters of NVLinks of a GPU, those of one link after those of the other.

    Raises:
        ReadingError: The driver does not return them.
    """
    return read_fields(api, handle, [Field(number, link.number) for link in links for _, _, number in _COUNTERS])


def with_counters(links: Sequence[NvLink], answers: Sequence[Value], seconds: float) -> tuple[NvLink, ...]:
    """The links with new counters, and the rates since the previous ones.

    Args:
        links: The links with their previous counters.
        answers: What `read_counters` returns.
        seconds: Time since the previous ones.
    """
    size = len(_COUNTERS)
    return tuple(_with_rates(link, answers[size * row : size * (row + 1)], seconds) for row, link in enumerate(links))


def without_counters(links: Sequence[NvLink], problem: Problem) -> tuple[NvLink, ...]:
    """The links without counters and rates, and why."""
    return with_counters(links, [problem] * (len(_COUNTERS) * len(links)), 0.0)


def with_nvlinks(pair: GpuPair, gpus: Mapping[int, LinkedGpu]) -> GpuPair:
    """The pair with the number of its NVLinks: those that end at the other GPU, or those to an NVSwitch."""
    first, second = gpus[pair.first], gpus[pair.second]
    unknown = next((gpu.problems.get("links") for gpu in (first, second) if gpu.links is None), None)
    if unknown is not None:
        is_none = unknown.code is ProblemCode.NOT_SUPPORTED
        return replace(pair, nvlinks=0) if is_none else replace(pair, problems={**pair.problems, "nvlinks": unknown})
    direct = _links_to(first, {sysfs_bus_id(second.pci_bus_id or "")})
    if direct:
        return replace(pair, nvlinks=direct)
    every_gpu = {sysfs_bus_id(gpu.pci_bus_id) for gpu in gpus.values() if gpu.pci_bus_id is not None}
    return replace(pair, nvlinks=min(_links_to(gpu, every_gpu, elsewhere=True) for gpu in (first, second)))


def _links_to(gpu: LinkedGpu, bus_ids: Collection[str], *, elsewhere: bool = False) -> int:
    """The active links of a GPU to devices with these bus IDs; with ``elsewhere``, to all others: to NVSwitches."""
    remotes = [link.remote_bus_id for link in gpu.links or () if link.is_up]
    return sum(((remote is not None and sysfs_bus_id(remote) in bus_ids) is not elsewhere) for remote in remotes)


def _with_rates(link: NvLink, answers: Sequence[Value], seconds: float) -> NvLink:
    """The link with new counters, and the rates since the previous ones.

    Args:
        link: The link with its previous counters.
        answers: The new counters in KiB.
        seconds: Time since the previous ones.
    """
    values: dict[str, int | None] = {}
    problems = dict(link.problems)
    for (counter, rate, _), answer in zip(_COUNTERS, answers, strict=True):
        before: int | None = getattr(link, counter)
        values |= {counter: None, rate: None}
        if isinstance(answer, Problem) or answer > _MAX_KIBIBYTES:
            problems[counter] = problems[rate] = answer if isinstance(answer, Problem) else invalid(answer)
            continue
        problems.pop(counter, None)
        problems.pop(rate, None)
        values[counter] = after = int(answer) * _KIBIBYTE
        if before is None or seconds <= 0:
            problems[rate] = NEEDS_TWO_SAMPLES
            continue
        per_second = round((after - before) / seconds)
        limit = link.bytes_per_second
        if per_second < 0 or (limit and per_second > _RATE_SLACK * limit):
            problems[rate] = invalid(per_second)
        else:
            values[rate] = per_second
    return replace(link, **values, problems=problems)  # type: ignore[arg-type]
