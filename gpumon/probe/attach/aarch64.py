"""What gpumon needs to know of aarch64, as `gpumon.probe.attach.x86_64` does; it has run in an emulator only.

The return address is in a register. The kernel rewinds an interrupted system call before a tracer sees the registers.
The registers of SVE are not part of the frame yet.
"""

import struct
from collections.abc import Callable
from typing import Final

NT_PRSTATUS: Final = 1
NT_VECTORS: Final = 2
"""NT_PRFPREG: ``struct user_fpsimd_state`` of asm/ptrace.h."""
NO_SYSTEM_CALL: tuple[int, bytes] | None = (0x404, b"\xff\xff\xff\xff")
"""NT_ARM_SYSTEM_CALL. The kernel writes x7 itself in the stops at a system call."""
MAX_VECTORS_BYTES: Final = 528
NAMES: Final = (*(f"x{number}" for number in range(31)), "sp", "pc", "pstate")
"""``struct user_pt_regs`` of asm/ptrace.h, and a part of ``struct sigcontext``."""
SP, PC, NUMBER, RESULT, ADDED = "sp", "pc", "x8", "x0", "x0"
MMAP, MUNMAP, SIGRETURN = 222, 215, 139
_SVC: Final = b"\x01\x00\x00\xd4"
CALL_AND_RETURN: Final = _SVC + b"\xc0\x03\x5f\xd6"
SYSTEM_CALL_BYTES: Final = len(_SVC)
RESTORER: Final = b"\x68\x11\x80\xd2" + _SVC
"""``mov x8, #139; svc #0``, in the vdso."""
MODE, _BRANCH_TYPE = ("pstate", 0x10, 0), 0xC00
"""Bits of pstate. A branch type would make the first instruction of a function a fault."""
_CONTEXT_OFFSET, _VECTORS_OFFSET, _FRAME_BYTES = 304, 592, 1136
"""In ``struct rt_sigframe``: after ``siginfo`` (128 bytes) and the start of ``ucontext``; records are aligned to 16."""
_KEEP_STACK: Final = 0x7FFFFFFF
_FPSIMD_MAGIC: Final = 0x46508001
"""From asm/sigcontext.h. A record of size 0 ends the records."""
RETURN_OFFSET, RETURNED_OFFSET, PENDING_OFFSET = 64, 72, 80
CODE: Final = struct.pack(
    "<37I",
    *(0xD2801168, 0xD4000001, 0x17FFFFFE, 0xD503201F),  # again: mov x8, #139; svc #0; b again; nop: rt_sigreturn
    *(0xA9BD7BFD, 0xF9000BF3, 0xAA0003F3),  # pending: stp x29, x30, [sp, #-48]!; str x19, [sp, #16]; mov x19, x0
    *(0xD2800000, 0x910083E1, 0xD2800E28, 0xD4000001),  # clock_gettime(CLOCK_REALTIME, sp + 32)
    *(0xF94013E0, 0xF9400A61, 0xEB01001F, 0x5400020A),  # if (seconds >= page->deadline) goto unmap
    *(0xD2800040, 0x91008261, 0x910083E2, 0xD2800103, 0xD28010E8, 0xD4000001),  # rt_sigprocmask(SIG_SETMASK, mask, old)
    *(0x91040260, 0xF9401661, 0xD63F0020),  # page->run(page->text)
    *(0xD2800040, 0x910083E1, 0xD2800002, 0xD2800103, 0xD28010E8, 0xD4000001),  # rt_sigprocmask(SIG_SETMASK, old, NULL)
    *(0xAA1303E0, 0xF9400E61, 0xF9401A69),  # unmap: the page, its length, and `svc #0; ret` of the C library
    *(0xF9400BF3, 0xA8C37BFD, 0xD2801AE8, 0xD65F0120),  # munmap; `ret x9`: BTI has no objection to that
)


def calling(
    old: dict[str, int], stack: int, returns_to: int, address: int, *arguments: int, number: int = 0
) -> dict[str, int]:
    """Registers that call a function, or `CALL_AND_RETURN` for a system call."""
    passed = {f"x{position}": value for position, value in enumerate(arguments)}
    pstate = old["pstate"] & ~_BRANCH_TYPE
    return {**old, **passed, "x8": number, "x30": returns_to, "sp": stack, "pc": address, "pstate": pstate}


def frame_address(old: dict[str, int], _: bytes) -> int:
    """Where the frame begins; there is no red zone."""
    return (old["sp"] - _FRAME_BYTES) & ~15


def frame(old: dict[str, int], mask: int, vectors: bytes, *_: int) -> bytes:
    """What lies on the stack of the thread while it makes a call: what ``rt_sigreturn`` restores."""
    content = bytearray(_FRAME_BYTES)
    struct.pack_into("<QQQi4xQQ", content, 128, 0, 0, 0, _KEEP_STACK, 0, mask)
    content[_CONTEXT_OFFSET + 8 : _CONTEXT_OFFSET + 280] = struct.pack("<34Q", *(old[name] for name in NAMES))
    state = struct.unpack_from("<512sII", vectors)
    struct.pack_into("<IIII512s", content, _VECTORS_OFFSET, _FPSIMD_MAGIC, 528, state[1], state[2], state[0])
    return bytes(content)


def is_in_system_call(old: dict[str, int], read: Callable[[int, int], bytes]) -> bool:
    """Whether the kernel is about to repeat a system call."""
    return read(old["pc"], len(_SVC)) == _SVC


def flag_address(code: bytes, start: int, runtime: int) -> int:
    """Where a function reads what it returns: a variable, or a field of ``runtime``; 0 if its code is unknown."""
    words = [word for word in struct.unpack("<8I", code) if word != 0xD503245F]  # bti c
    if words[0] & 0x9F000000 != 0x90000000:
        return 0
    pages = (words[0] >> 5 & 0x7FFFF) << 2 | words[0] >> 29 & 3  # adrp: a signed number of pages
    page = (start & ~0xFFF) + ((pages ^ 1 << 20) - (1 << 20)) * 4096
    for word, base in ((words[1], page), (words[2] if words[1] >> 22 == 0x3E5 else 0, runtime)):
        if word >> 22 == 0x2E5:  # ldr w; 0x3E5 is ldr x, which loads the address of `runtime`
            return base + (word >> 10 & 0xFFF) * 4
    return 0
