"""Where a seccomp filter refuses ptrace: a sentence from attach, and the answer of `why` without a probe."""

import platform
import subprocess
import sys

import pytest

from tests.processes import PROC

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter has the numbers of x86-64")
REFUSE = """
import ctypes, struct
def instruction(code, if_true, if_false, value):
    return struct.pack("HBBI", code, if_true, if_false, value)
# load the number; ptrace (101) and process_vm_readv (310) return EPERM, all others are allowed
program = b"".join(instruction(*fields) for fields in (
    (0x20, 0, 0, 0), (0x15, 1, 0, 101), (0x15, 0, 1, 310), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000)))
class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_char_p)]
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, ctypes.byref(Filter(len(program) // 8, program)), 0, 0) == 0  # PR_SET_SECCOMP
"""
ASK = """
import sys
from gpumon.core.problems import CommandError
from gpumon.operations.why.outside import examine_outside
from gpumon.probe.attach import attach
pid = int(sys.argv[1])
try:
    attach(pid)
except CommandError as error:
    print(error.word, "|", error.problem)
report = examine_outside(pid, 1.0)
print(*report.stages, "|", report.verdict.summary)
"""


def test_attach_is_refused_and_why_still_answers() -> None:
    code = "print('on', flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        command = [sys.executable, "-c", REFUSE + ASK, str(process.pid)]
        asked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (PROC / str(process.pid)).exists()
        process.kill()
    refusal, answer = asked.stdout.splitlines()
    assert refusal.startswith("needs SYS_PTRACE | The kernel does not allow gpumon to access the memory of")
    assert answer.startswith(("outside | ", "kernel | "))  # /proc/PID/mem can still be read
