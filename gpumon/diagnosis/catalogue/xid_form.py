"""The form of the entries of Xids, and the fixes that several Xids share."""

from typing import Final

from gpumon.core.xids import XID_MEANINGS
from gpumon.diagnosis.catalogue import sources
from gpumon.diagnosis.catalogue.wording import BELOW_PYTORCH, CONTEXT_IS_DEAD
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Xids of the kernel log"

RESTART_PROGRAM: Final = Fix("Restart the program; other processes on the GPU can continue.")
REBOOT: Final = Fix("If the reset fails or does not help, reboot the host.", "sudo reboot")
REPORT_TO_VENDOR: Final = Fix(
    "If the error returns on the same GPU, collect a report for the hardware vendor.",
    "sudo nvidia-bug-report.sh",
)
EARLIEST_XID: Final = Fix(
    "Read the other Xids of the same second: the earliest one is the cause.", "sudo dmesg -T | grep -i xid"
)
WAIT_FOR_DEBUGGER: Final = Fix(
    "Make the program wait at the fault, then attach cuda-gdb.",
    "CUDA_DEVICE_WAITS_ON_EXCEPTION=1 python train.py",
)
DISABLE_GSP: Final = Fix(
    "If the error returns, upgrade the driver; the proprietary kernel module can also run without the GSP firmware.",
    "echo 'options nvidia NVreg_EnableGpuFirmware=0' | sudo tee /etc/modprobe.d/nvidia-gsp.conf && sudo reboot",
)
STOP_WORK: Final = Fix("Start no new work on the GPU, and stop the running work: its data may be wrong.")
RESET_WHEN_IDLE: Final = Fix(
    "Reset the GPU when it is idle, so that the driver maps the spare row.",
    "sudo nvidia-smi --gpu-reset -i 0",
)
_NVLINK_5: Final = range(144, 151)
"""Xids of the NVLinks of Blackwell, which remove the work of programs."""


def _previous(number: int) -> tuple[Pattern, ...]:
    """How an Xid reads in the line of another one, such as 45, that follows from it."""
    return (Pattern("caused by previous Xid", rf"caused by previous Xid (?P<previous>{number})\b"),)


def xid(
    number: int,
    *,
    summary: str,
    context: ContextState,
    causes: tuple[str, ...],
    fixes: tuple[Fix, ...],
    detail: str = "",
    is_echo: bool = False,
) -> KnownError:
    """The entry of an Xid, whose title is its meaning in `XID_MEANINGS`.

    Args:
        number: The Xid.
        summary: What happened, in one sentence.
        context: The state of the CUDA contexts on the GPU after the error.
        causes: Possible causes, most frequent first.
        fixes: How to fix it, NVIDIA's recommended action first.
        detail: A regular expression for the rest of the line.
        is_echo: Whether the Xid usually follows another Xid or an error of the program.
    """
    line = (
        rf"NVRM: Xid \((?:PCI:)?(?P<bus>[\w:.]{{4,20}})(?: GPU-I:(?P<instance>\d{{1,3}}))?\): {number},"
        r"(?: pid=(?:(?P<pid>\d{1,10})|'<unknown>'),?)?(?: name=(?:(?P<name>[^,<\n]{1,64})|<unknown>),?)?"
    )
    return KnownError(
        id=f"xid-{number}",
        section=SECTION,
        title=f"Xid {number}: {XID_MEANINGS[number]}",
        summary=summary,
        context=context,
        patterns=(Pattern("NVRM: Xid (", line + detail), *(_previous(number) if number in _NVLINK_5 else ())),
        causes=causes,
        fixes=fixes,
        empty_cache=CONTEXT_IS_DEAD if context is ContextState.DEAD else BELOW_PYTORCH,
        sources=(sources.XID_CATALOG,),
        is_echo=is_echo,
    )
