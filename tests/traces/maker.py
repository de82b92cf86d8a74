"""Makes traces with a known account, in the format of Kineto. Times are microseconds."""

import gzip
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gpumon.traces.build import TraceFile, build_trace
from gpumon.traces.columns import TraceColumns
from gpumon.traces.event_stream import EventStream
from gpumon.traces.model import Trace
from gpumon.traces.reader import OpenTrace
from gpumon.traces.table import EventTable

PROCESS = 100
MAIN = 101
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_tensor16x8x16_kernel"
SGEMM = "ampere_sgemm_128x64_tn"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
PAGEABLE = "Memcpy HtoD (Pageable -> Device)"

_NOTHING: Mapping[str, object] = MappingProxyType({})


class TraceMaker:
    """A trace that grows event by event."""

    def __init__(self, **header: object) -> None:
        self.header = header
        self.events: list[dict[str, Any]] = []
        self._correlation = 0

    def add(self, category: str, name: str, begin: float, duration: float, thread: int = MAIN, **args: object) -> None:
        self.events.append({"ph": "X", "cat": category, "name": name, "pid": PROCESS, "tid": thread})
        self.events[-1] |= {"ts": begin, "dur": duration, "args": args}

    def step(self, number: int, begin: float, duration: float) -> None:
        self.add("user_annotation", f"ProfilerStep#{number}", begin, duration)

    def operator(
        self, name: str, begin: float, duration: float, thread: int = MAIN, more: Mapping[str, object] = _NOTHING
    ) -> None:
        self.add("cpu_op", name, begin, duration, thread, **more)

    def data(self, begin: float, duration: float) -> None:
        self.add("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin, duration)

    def call(self, name: str, begin: float, duration: float, thread: int = MAIN, correlation: int = 0) -> None:
        self.add("cuda_runtime", name, begin, duration, thread, correlation=correlation)

    def work(
        self,
        name: str,
        begin: float,
        duration: float,
        launched: float | None = None,
        stream: int = 7,
        category: str = "kernel",
        more: Mapping[str, object] = _NOTHING,
    ) -> None:
        """Work on the GPU, and the call that launched it."""
        self._correlation += 1
        if launched is not None:
            call = {"kernel": "cudaLaunchKernel", "gpu_memset": "cudaMemsetAsync"}.get(category, "cudaMemcpyAsync")
            self.call(call, launched, 4, correlation=self._correlation)
        args = {**more, "device": 0, "stream": stream, "correlation": self._correlation}
        self.events.append({"ph": "X", "cat": category, "name": name, "pid": 0, "tid": stream})
        self.events[-1] |= {"ts": begin, "dur": duration, "args": args}

    def copy(self, name: str, begin: float, duration: float, size: int, launched: float | None = None) -> None:
        self.work(name, begin, duration, launched, category="gpu_memcpy", more={"bytes": size})

    @property
    def document(self) -> dict[str, Any]:
        return {"schemaVersion": 1, **self.header, "traceEvents": self.events, "traceName": "x.json"}

    def write(self, path: Path) -> Path:
        data = json.dumps(self.document, indent=2).encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        return path

    def trace(self) -> Trace:
        return self.opened().trace

    def opened(self) -> OpenTrace:
        return opened(json.dumps(self.document).encode())


def table_of(data: bytes) -> tuple[EventTable, EventStream]:
    table, stream = EventTable(), EventStream(io.BytesIO(data))
    table.add_all(stream.events())
    return table, stream


def built(data: bytes) -> Trace:
    """The trace in a document, read in this process."""
    return opened(data).trace


def opened(data: bytes) -> OpenTrace:
    """The trace in a document with the columns of its timeline, read in this process."""
    table, stream = table_of(data)
    columns = os.memfd_create("test")
    try:
        trace = build_trace(table, TraceFile("x.json", len(data), stream.header, stream.damage), columns)
        return OpenTrace(trace, TraceColumns(columns, trace.lanes))
    finally:
        os.close(columns)


def times(trace: Trace) -> dict[str, float]:
    """The microseconds of each class that has any."""
    return {item.name: item.time_ns / 1000 for item in trace.classes if item.time_ns}


def training(steps: int = 4, **header: object) -> TraceMaker:
    """Steps of 1000 µs with every class; the account of each of them but the first is the one in `ACCOUNT`."""
    maker = TraceMaker(**header)
    for number in range(steps):
        at = 1000 * number
        maker.step(number, at, 1000)
        maker.operator("aten::linear", at + 0, 8)
        maker.work(GEMM, at + 10, 200, launched=at + 2)
        maker.work(ELEMENTWISE, at + 210, 100, launched=at + 20)
        maker.work(NCCL, at + 250, 200, launched=at + 30, stream=20, more={"Collective name": "allreduce"})
        maker.copy(PAGEABLE, at + 440, 60, 1 << 20, launched=at + 40)
        maker.call("cudaStreamSynchronize", at + 300, 203)
        maker.data(at + 520, 100)
        maker.operator("aten::mm", at + 695, 20)
        maker.work(SGEMM, at + 720, 180, launched=at + 700)
        maker.work("some_custom_kernel", at + 910, 40, launched=at + 702)
    return maker


ACCOUNT = {
    "tensor_cores": 200.0, "memory_bound": 100.0, "communication": 140.0, "copies": 50.0, "data": 100.0,
    "synchronization": 103.0, "host": 77.0, "without_tensor_cores": 180.0, "other_compute": 40.0, "idle": 10.0,
}  # fmt: skip
