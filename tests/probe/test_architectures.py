"""How a call is set up in a thread of each architecture, by the layouts of the kernel's headers."""

import ctypes
import struct
from collections.abc import Callable
from types import ModuleType
from typing import cast

import pytest

from gpumon.probe.attach import aarch64, injection, x86_64
from gpumon.probe.attach.address_space import AddressSpace
from gpumon.probe.attach.ptrace import Tracee, TraceStop

u64 = ctypes.c_uint64


class Frame(ctypes.Structure):
    """``struct rt_sigframe`` of arch/arm64/kernel/signal.c, with the record of the vector registers."""

    _fields_ = (
        *(("siginfo", u64 * 16), ("flags", u64), ("link", u64), ("stack", u64), ("stack_flags", ctypes.c_int)),
        *(("stack_size", u64), ("mask", u64), ("unused", u64 * 16), ("fault", u64), ("x", u64 * 31), ("sp", u64)),
        *(("pc", u64), ("pstate", u64), ("padding", u64), ("magic", ctypes.c_uint32), ("size", ctypes.c_uint32)),
        *(("fpsr", ctypes.c_uint32), ("fpcr", ctypes.c_uint32), ("v", u64 * 64), ("end", u64), ("more", u64)),
    )


class Thread:
    """A thread that makes every call at once; what a tracer writes into its registers."""

    def __init__(self, cpu: ModuleType, raw: bytes, vectors: bytes) -> None:
        self.cpu, self.sets, self.written = cpu, {cpu.NT_PRSTATUS: raw, cpu.NT_VECTORS: vectors}, list[int]()

    def read_registers(self, kind: int, _: int) -> bytes:
        return self.sets[kind]

    def write_registers(self, kind: int, content: bytes) -> None:
        self.sets[kind] = content
        self.written.append(kind)

    def wait(self, _: float) -> TraceStop:
        layout = f"<{len(self.cpu.NAMES)}Q"
        values = dict(zip(self.cpu.NAMES, struct.unpack(layout, self.sets[1]), strict=True))
        number = values["x8"] if self.cpu is aarch64 else values["rax"]
        self.called = values
        values = {**values, self.cpu.PC: 0x7000 + self.cpu.SYSTEM_CALL_BYTES, self.cpu.NUMBER: number}
        self.sets[1] = struct.pack(layout, *{**values, self.cpu.RESULT: 0x5000}.values())
        return TraceStop(0, is_syscall=True)

    def __getattr__(self, _: str) -> Callable[..., int]:
        return lambda *_, **__: 5


@pytest.mark.parametrize("cpu", [x86_64, aarch64])
def test_a_system_call_is_made_and_undone(cpu: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(injection, "cpu", cpu)
    raw = struct.pack(f"<{len(cpu.NAMES)}Q", *range(0xF000, 0xF000 + len(cpu.NAMES)))
    thread = Thread(cpu, raw, vectors := bytes(528 if cpu is aarch64 else 1088))
    stopped = injection._StoppedThread(cast("Tracee", thread), cast("AddressSpace", thread))
    stopped.write_frame(0x6000)
    go = injection._StoppedThread.go
    monkeypatch.setattr(stopped, "go", lambda values, until, number, stops: go(stopped, values, until, number))
    assert stopped.make_system_call(0x7000, cpu.MMAP, 1, 2, 3, 4, 5, 6) == 0x5000
    order = {"x86_64": "rdi rsi rdx r10 r8 r9", "aarch64": "x0 x1 x2 x3 x4 x5"}[cpu.__name__.rpartition(".")[2]]
    assert [thread.called[name] for name in order.split()] == [1, 2, 3, 4, 5, 6]
    assert (thread.called[cpu.SP], thread.called[cpu.PC]) == (stopped.stack, 0x7000)
    assert stopped.stack % 16 == (0 if cpu is aarch64 else 8)
    assert cpu is x86_64 or (thread.called["x30"], thread.called["x8"]) == (0x6000, 222)
    stopped._is_in_system_call = False
    stopped.restore()
    assert thread.sets[1] == raw
    assert thread.written[-1] == cpu.NT_PRSTATUS
    assert (thread.sets.get(0x404) == b"\xff\xff\xff\xff") is (cpu is aarch64)
    assert thread.sets[cpu.NT_VECTORS] == vectors


def test_both_have_the_same_names() -> None:
    one, other = ({name for name in vars(cpu) if not name.startswith("_")} for cpu in (x86_64, aarch64))
    assert one - {"re"} == other


def test_the_frame_of_aarch64() -> None:
    old = dict(zip(aarch64.NAMES, range(100, 134), strict=True))
    vectors = struct.pack("<64QII8x", *range(64), 7, 8)
    content = aarch64.frame(old, 0x10200, vectors, 0, 0)
    frame = Frame.from_buffer_copy(content)
    assert (ctypes.sizeof(Frame), Frame.x.offset, Frame.magic.offset) == (len(content), 312, 592)
    assert [*frame.x, frame.sp, frame.pc, frame.pstate] == list(range(100, 134))
    assert (frame.mask, frame.magic, frame.size, frame.fpsr, frame.fpcr) == (0x10200, 0x46508001, 528, 7, 8)
    assert [*frame.v] == list(range(64))
    assert (frame.end, frame.more, frame.stack_flags) == (0, 0, 0x7FFFFFFF)


@pytest.mark.parametrize(
    ("start", "words", "address"),
    [
        (0x420A28, (0xD00030A0, 0xB9400800), 0xA36008),  # Debian's executable
        (0x29AFA0, (0xD503245F, 0xB0001C20, 0xF9466000, 0xB9401000), 0x9010),  # its library, after bti c
        (0x29AFA0, (0xD65F03C0,), 0),
    ],
)
def test_where_python_says_that_it_is_initialized_on_aarch64(start: int, words: tuple[int, ...], address: int) -> None:
    code = struct.pack("<8I", *words, *[0] * (8 - len(words)))
    assert aarch64.flag_address(code, start, 0x9000) == address
