"""What gpumon needs to know of x86-64: registers, the frame of a signal, and the code of a request.

The frame is the safety net of every call that is made in another process. It has the layout of the kernel's
``struct rt_sigframe`` and lies where a function finds its return address, so that a call that returns without a tracer
goes on to ``rt_sigreturn``, which restores registers, vector registers and blocked signals as they were.
"""

import re
import struct
from collections.abc import Callable
from typing import Final

NT_PRSTATUS: Final = 1
NT_VECTORS: Final = 0x202
"""NT_X86_XSTATE of linux/elf.h."""
MAX_VECTORS_BYTES: Final = 1 << 16
_LAYOUT: Final = (
    "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss "
    "fs_base gs_base ds es fs gs"
)
"""``struct user_regs_struct`` of sys/user.h."""
_CONTEXT_LAYOUT: Final = "r8 r9 r10 r11 r12 r13 r14 r15 rdi rsi rbp rbx rdx rax rcx rsp rip eflags"
"""The start of ``struct sigcontext_64`` of asm/sigcontext.h."""
NAMES, _CONTEXT_NAMES = tuple(_LAYOUT.split()), tuple(_CONTEXT_LAYOUT.split())
SP, PC, NUMBER, RESULT, ADDED = "rsp", "rip", "orig_rax", "rax", "rdi"
"""Registers: the number of a system call, its result, and that of a call when the thread returns from it."""
MMAP, MUNMAP, SIGRETURN = 9, 11, 15
"""Numbers of system calls."""
SYSTEM_CALL_BYTES: Final = 2
CALL_AND_RETURN: Final = b"\x0f\x05\xc3"
"""``syscall; ret``"""
RESTORER: Final = b"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05"
"""``mov $15, %rax; syscall``: what every C library has a signal handler return to."""
MODE: Final = ("cs", 0xFFFF, 0x33)
"""The register, its bits and their value in 64-bit code."""
NO_SYSTEM_CALL: Final = None
"""A set of registers that is also written to skip a system call."""
_DIRECTION_AND_TRAP_FLAGS: Final = 0x500
_RED_ZONE_BYTES: Final = 128
_FRAME_BYTES: Final = 440
_FRAME_OFFSET: Final = 456
"""Of the frame before the vector registers, which are aligned to 64 bytes; the frame is aligned as after a call."""
_UC_FLAGS: Final = 7
"""UC_FP_XSTATE, UC_SIGCONTEXT_SS and UC_STRICT_RESTORE_SS of asm/ucontext.h."""
_KEEP_STACK: Final = 0x7FFFFFFF
"""No valid ``ss_flags``: the kernel then leaves the alternate stack for signals as it is."""
_MAGIC1, _MAGIC2 = 0x46505853, 0x46505845
"""FP_XSTATE_MAGIC1 and 2 of asm/sigcontext.h."""
_SOFTWARE_OFFSET, _FEATURES_OFFSET = 464, 512
_TILE_FEATURES, _SIZE_WITHOUT_TILES = 3 << 17, 2696
"""AMX registers are part of a frame only if the thread has used them; before them ends PKRU at this offset."""
_RESTARTED: Final = frozenset({-512, -513, -514, -516})
"""Results of an interrupted system call that the kernel makes again (linux/errno.h)."""
_MINUS_ONE: Final = (1 << 64) - 1

RETURN_OFFSET, RETURNED_OFFSET, PENDING_OFFSET = 64, 73, 80
CODE: Final = bytes.fromhex(
    "89c7"  # returned: mov %eax, %edi         the result, for the tracer
    "b80f000000 0f05"  # again: mov $15, %eax; syscall    rt_sigreturn with the frame of the stack
    "ebf7"  # jmp again                               if a tracer has skipped it
    "0f1f440000"
    "53 4889fb 4883ec20"  # pending: push %rbx; mov %rdi, %rbx; sub $32, %rsp    %rdi is the page
    "b8e4000000 31ff 4889e6 0f05"  # clock_gettime(CLOCK_REALTIME, %rsp)
    "488b0424 483b4310 7d3e"  # if (seconds >= page->deadline) goto unmap
    "b80e000000 bf02000000 488d7320 488d542410 41ba08000000 0f05"  # rt_sigprocmask(SIG_SETMASK, &page->mask, old, 8)
    "488dbb00010000 ff5328"  # page->run(page->text)
    "b80e000000 bf02000000 488d742410 31d2 41ba08000000 0f05"  # rt_sigprocmask(SIG_SETMASK, old, NULL, 8)
    "4889df 488b7318 488b5330"  # unmap: the page, its length, and `syscall; ret` of the C library
    "4883c420 5b b80b000000 ffe2"  # munmap(page, length), which returns 0 to the interpreter
)
"""The code of a page, from `RETURN_OFFSET` on. It changes nothing else, and needs no symbol of the C library."""
_READS_FLAG: Final = re.compile(rb"(?:\xf3\x0f\x1e\xfa)?(?:U\x48\x89\xe5)?\x8b\x05(.{4})", re.DOTALL)
"""``mov offset(%rip), %eax``."""
_READS_FIELD: Final = re.compile(
    rb"(?:\xf3\x0f\x1e\xfa)?(?:U\x48\x89\xe5)?\x48\x8b\x05.{4}\x8b(?:\x40(.)|\x80(.{4}))", re.DOTALL
)
"""``mov table(%rip), %rax; mov offset(%rax), %eax``."""


def calling(old: dict[str, int], stack: int, _: int, address: int, *arguments: int, number: int = 0) -> dict[str, int]:
    """Registers that call a function, or `CALL_AND_RETURN` for a system call.

    Args:
        old: The registers before.
        stack: Where the frame lies, which begins with the address that the call returns to.
        address: The function.
        arguments: Its arguments; the fourth one is that of a system call.
        number: The number of the system call.
    """
    passed = dict(zip(("rdi", "rsi", "rdx", "r10", "r8", "r9"), arguments, strict=False))
    flags = old["eflags"] & ~_DIRECTION_AND_TRAP_FLAGS
    return {**old, **passed, "rip": address, "rsp": stack, "rax": number, "orig_rax": _MINUS_ONE, "eflags": flags}


def frame_address(old: dict[str, int], xstate: bytes) -> int:
    """Where the frame begins: below the red zone of the interrupted function."""
    return ((old["rsp"] - _RED_ZONE_BYTES - len(xstate) - 8) & ~63) - _FRAME_OFFSET


def frame(old: dict[str, int], mask: int, xstate: bytes, address: int, return_address: int) -> bytes:
    """What lies on the stack of the thread while it makes a call.

    Args:
        old: The registers to restore. A system call that was interrupted is made again, with its arguments.
        mask: The blocked signals to restore.
        xstate: The vector registers to restore, as XSAVE lays them out.
        address: Where the frame will be.
        return_address: Where the call returns to.
    """
    values = dict(old)
    result = values["rax"] - (1 << 64) if values["rax"] >> 63 else values["rax"]
    if values["orig_rax"] != _MINUS_ONE and result in _RESTARTED:
        values["rax"], values["rip"] = values["orig_rax"], values["rip"] - 2
    context = struct.pack("<18Q", *(values[name] for name in _CONTEXT_NAMES))
    context += struct.pack("<4H4QQ64x", values["cs"], 0, 0, values["ss"], 0, 0, 0, 0, address + _FRAME_OFFSET)
    head = struct.pack("<QQQQi4xQ", return_address, _UC_FLAGS, 0, 0, _KEEP_STACK, 0)
    return (head + context + struct.pack("<Q", mask)).ljust(_FRAME_OFFSET, b"\0") + _vector_area(xstate)


def _vector_area(xstate: bytes) -> bytes:
    """The vector registers with the marks by which the kernel recognizes all of them (asm/sigcontext.h)."""
    (features,) = struct.unpack_from("<Q", xstate, _SOFTWARE_OFFSET)
    (used,) = struct.unpack_from("<Q", xstate, _FEATURES_OFFSET)
    if features & _TILE_FEATURES and not used & _TILE_FEATURES:
        xstate, features = xstate[:_SIZE_WITHOUT_TILES], features & ~_TILE_FEATURES
    software = struct.pack("<IIQI28x", _MAGIC1, len(xstate) + 4, features, len(xstate))
    end = _SOFTWARE_OFFSET + len(software)
    return xstate[:_SOFTWARE_OFFSET] + software + xstate[end:] + struct.pack("<I", _MAGIC2)


def is_in_system_call(old: dict[str, int], _: Callable[[int, int], bytes]) -> bool:
    """Whether the kernel is about to repeat a system call."""
    return old["orig_rax"] != _MINUS_ONE


def flag_address(code: bytes, start: int, runtime: int) -> int:
    """Where a function reads what it returns: a variable, or a field of ``runtime``; 0 if its code is unknown."""
    flag, field = _READS_FLAG.match(code), _READS_FIELD.match(code)
    if flag:
        return start + flag.end() + int(struct.unpack("<i", flag[1])[0])
    return runtime + int.from_bytes(field[1] or field[2], "little") if field else 0
