"""Devices, and the allocator of segment: blocks in segments of 20 MiB or as large as asked for."""

import os
import threading
import types

import torch

from . import memory
from .memory import memory_snapshot, memory_summary  # noqa: F401

TOTAL = 80 << 30
_COUNT = int(os.environ.get("FAKE_TORCH_DEVICES", "2"))
_queued_calls = []
_initialized = False
_observers = []
_local = threading.local()


class _Device:
    def __init__(self):
        self.has_context = False
        self.blocks = {}
        self.segments = []
        self.next_address = 0x7F0000000000
        self.peak = self.reserved_peak = self.retries = self.ooms = 0
        self.allowed = TOTAL


devices = [_Device() for _ in range(_COUNT)]


def is_initialized():
    return _initialized


def _lazy_init():
    global _initialized
    if not _initialized:
        for call, _ in _queued_calls:
            call()
        _initialized = True


def get_device_properties(ordinal):
    return types.SimpleNamespace(
        name="NVIDIA Fake", total_memory=TOTAL, uuid=f"{ordinal:08x}-0000-0000-0000-000000000000"
    )


class device:
    def __init__(self, ordinal):
        self.ordinal = ordinal

    def __enter__(self):
        assert devices[self.ordinal].has_context, "a probe must not make a context"

    def __exit__(self, *_):
        return False


def allocate(ordinal, size):
    """Makes a block; the last free one of the size is used again."""
    _lazy_init()
    state = devices[ordinal]
    state.has_context = True
    free = next((segment for segment in state.segments if segment["size"] == size and not segment["used"]), None)
    if free is None:
        if sum(segment["size"] for segment in state.segments) + size > state.allowed:
            state.ooms += 1
            for observer in _observers:
                observer(ordinal, size, state.allowed, TOTAL - sum(segment["size"] for segment in state.segments))
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes.")
        free = {"address": state.next_address, "size": size, "used": False}
        state.next_address += size
        state.segments.append(free)
    free["used"] = True
    state.peak = max(state.peak, memory.used(state))
    state.reserved_peak = max(state.reserved_peak, memory.reserved(state))
    return free


def empty_cache():
    for state in devices:
        state.segments = [segment for segment in state.segments if segment["used"]]


import torch.autograd

torch._C._cuda_memoryStats = memory.stats
torch._C._cuda_getDeviceCount = lambda: _COUNT
torch._C._cuda_hostMemoryStats = lambda: {"allocated_bytes": {"current": 4096}, "active_bytes": {"current": 1024}}
torch._C._cuda_hasPrimaryContext = lambda ordinal: devices[ordinal].has_context
torch._C._cuda_attach_out_of_memory_observer = _observers.append
torch._C._cuda_getAllocatorBackend = lambda: os.environ.get("FAKE_TORCH_BACKEND", "native")
