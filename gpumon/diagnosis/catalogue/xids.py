"""Xids: errors that the NVIDIA driver writes to the kernel log."""

from typing import Final

from gpumon.core.xids import XID_MEANINGS
from gpumon.diagnosis.catalogue import fixes as shared_fixes
from gpumon.diagnosis.catalogue import sources
from gpumon.diagnosis.catalogue.wording import BELOW_PYTORCH, CONTEXT_IS_DEAD
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Xids of the kernel log"

_RESTART_PROGRAM: Final = Fix("Restart the program; other processes on the GPU can continue.")
_REBOOT: Final = Fix("If the reset fails or does not help, reboot the host.", "sudo reboot")
_REPORT_TO_VENDOR: Final = Fix(
    "If the error returns on the same GPU, collect a report for the hardware vendor.",
    "sudo nvidia-bug-report.sh",
)
_EARLIEST_XID: Final = Fix(
    "Read the other Xids of the same second: the earliest one is the cause.", "sudo dmesg -T | grep -i xid"
)
_WAIT_FOR_DEBUGGER: Final = Fix(
    "Make the program wait at the fault, then attach cuda-gdb.",
    "CUDA_DEVICE_WAITS_ON_EXCEPTION=1 python train.py",
)
_DISABLE_GSP: Final = Fix(
    "If the error returns, upgrade the driver; the proprietary kernel module can also run without the GSP firmware.",
    "echo 'options nvidia NVreg_EnableGpuFirmware=0' | sudo tee /etc/modprobe.d/nvidia-gsp.conf",
)
_STOP_WORK: Final = Fix("Start no new work on the GPU, and stop the running work: its data may be wrong.")
_RESET_WHEN_IDLE: Final = Fix(
    "Reset the GPU when it is idle, so that the driver maps the spare row.",
    "sudo nvidia-smi --gpu-reset -i 0",
)


def _xid(
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
        rf"NVRM: Xid \((?:PCI:)?(?P<bus>[\w:.]{{4,20}})\): {number},"
        r"(?: pid=(?:(?P<pid>\d{1,10})|'<unknown>'),?)?(?: name=(?:(?P<name>[^,<\n]{1,64})|<unknown>),?)?"
    )
    return KnownError(
        id=f"xid-{number}",
        section=SECTION,
        title=f"Xid {number}: {XID_MEANINGS[number]}",
        summary=summary,
        context=context,
        patterns=(Pattern("NVRM: Xid (", line + detail),),
        causes=causes,
        fixes=fixes,
        empty_cache=CONTEXT_IS_DEAD if context is ContextState.DEAD else BELOW_PYTORCH,
        sources=(sources.XID_CATALOG,),
        is_echo=is_echo,
    )


ERRORS: Final[tuple[KnownError, ...]] = (
    # Faults of programs
    _xid(
        13,
        summary="A kernel accessed an address out of range or misaligned, or executed an illegal instruction.",
        context=ContextState.DEAD,
        causes=(
            "A bug in the program or in a kernel that it uses.",
            "If many different programs fail on the same GPU only: the hardware or the driver.",
        ),
        fixes=(
            _RESTART_PROGRAM,
            shared_fixes.LAUNCH_BLOCKING,
            shared_fixes.SANITIZER,
            _WAIT_FOR_DEBUGGER,
            _REPORT_TO_VENDOR,
        ),
    ),
    _xid(
        31,
        summary="A kernel accessed an address at which the GPU has no memory mapped.",
        context=ContextState.DEAD,
        causes=(
            "A bug in the program: an index out of range, a use of freed memory, or a pointer to another GPU's memory.",
            "Rarely the driver or the hardware.",
        ),
        fixes=(_RESTART_PROGRAM, shared_fixes.LAUNCH_BLOCKING, shared_fixes.SANITIZER, _WAIT_FOR_DEBUGGER),
    ),
    _xid(
        43,
        summary="The GPU stopped the work of one program after a fault in that program; the GPU itself is healthy.",
        context=ContextState.DEAD,
        causes=("A fault or an assert in a kernel, which the program's own log reports.", "An earlier Xid."),
        fixes=(
            Fix("Take no action on the GPU; find the error in the program's log."),
            _EARLIEST_XID,
        ),
        is_echo=True,
    ),
    _xid(
        45,
        summary="The driver removed a program's work from the GPU, because the program ended or after another error.",
        context=ContextState.DEAD,
        causes=(
            "The program was killed, crashed, or was stopped with Ctrl-C.",
            "An earlier Xid, which is then the cause.",
        ),
        fixes=(_EARLIEST_XID, _RESTART_PROGRAM),
        is_echo=True,
    ),
    _xid(
        137,
        summary="A program accessed an address in another GPU's memory over NVLink without permission.",
        context=ContextState.DEAD,
        causes=(
            "A bug in the program: memory of a process that has ended, or an index out of range.",
            "Rarely the driver or the link.",
        ),
        fixes=(
            Fix("Take no action on the GPU; restart the program, and find the first error in the logs of all ranks."),
            shared_fixes.SANITIZER,
            _WAIT_FOR_DEBUGGER,
        ),
    ),
    # Links and the PCIe bus
    _xid(
        74,
        summary="A link between this GPU and another GPU or an NVSwitch failed.",
        context=ContextState.RESET,
        causes=(
            "The GPU at the other end failed or was reset, and this end of the link only detected that.",
            "A bridge, a connector or an NVSwitch is failing.",
        ),
        fixes=(_EARLIEST_XID, shared_fixes.LINK_STATE, shared_fixes.RESET_GPU, _REBOOT, _REPORT_TO_VENDOR),
    ),
    _xid(
        79,
        summary="The driver can no longer reach the GPU over PCI Express.",
        context=ContextState.RESET,
        causes=(
            "The link went down: power, a cable, the seating of the card, or heat.",
            "The GPU is failing; rarely the driver.",
        ),
        fixes=(
            Fix(
                "Reboot the physical host, not a virtual machine on it; if that is not enough, power it off.",
                "sudo reboot",
            ),
            Fix("Look for earlier PCIe errors in the kernel log.", "sudo dmesg -T | grep -i -E 'pcie|aer'"),
            shared_fixes.LOWER_POWER,
            _REPORT_TO_VENDOR,
        ),
    ),
    _xid(
        121,
        summary="The NVLink-C2C link between the GPU and its Grace CPU had an error, which was corrected.",
        context=ContextState.ALIVE,
        causes=("Noise on the link; it has no effect on programs.",),
        fixes=(
            Fix("Let programs continue; a reset when the GPU is idle retrains the link."),
            _REPORT_TO_VENDOR,
        ),
    ),
    _xid(
        149,
        summary="The data layer of an NVLink on Blackwell reported an error, whose sub-code is its severity.",
        context=ContextState.UNKNOWN,
        causes=("The link went down or had many bit errors.", "The other end, or an NVSwitch, failed or was reset."),
        fixes=(
            Fix(
                "Check whether an Xid 154 follows, which names the required action.",
                "sudo dmesg -T | grep 'Xid.*: 154,'",
            ),
            shared_fixes.LINK_STATE,
            shared_fixes.RESET_GPU,
            _REPORT_TO_VENDOR,
        ),
    ),
    # The GPU and its firmware
    _xid(
        109,
        summary="The GPU did not switch from one program's work to another's in time.",
        context=ContextState.RESET,
        causes=(
            "A kernel that does not end, or a fault in a kernel.",
            "The driver, its firmware or the hardware.",
        ),
        fixes=(shared_fixes.RESET_GPU, _RESTART_PROGRAM, _REBOOT, _REPORT_TO_VENDOR),
    ),
    _xid(
        119,
        summary="The driver sent a request to the GPU's firmware (GSP) and received no answer in time.",
        context=ContextState.RESET,
        causes=("A bug in the firmware or the driver.", "The GPU is failing, or has lost power or its PCIe link."),
        fixes=(shared_fixes.RESET_GPU, _REBOOT, _DISABLE_GSP, _REPORT_TO_VENDOR),
    ),
    _xid(
        120,
        summary="The GPU's firmware (GSP) failed with an internal error.",
        context=ContextState.RESET,
        causes=("A bug in the firmware or the driver.", "The GPU is failing."),
        fixes=(shared_fixes.RESET_GPU, _REBOOT, _DISABLE_GSP, _REPORT_TO_VENDOR),
    ),
    _xid(
        143,
        summary="The driver could not initialize the GPU.",
        context=ContextState.RESET,
        causes=("An earlier reset or start that failed.", "Firmware or hardware."),
        fixes=(shared_fixes.RESET_GPU, _REBOOT, _REPORT_TO_VENDOR),
    ),
    _xid(
        154,
        summary="The driver reports the required recovery action after another Xid: none, drain, reset or reboot.",
        context=ContextState.UNKNOWN,
        causes=("An earlier Xid.",),
        fixes=(
            Fix(
                "Take the action named after `to`: Reset Required or FLR is a reset, Node Reboot or OS Reboot a reboot."
            ),
            shared_fixes.RESET_GPU,
            Fix("If a reboot is required, reboot the host.", "sudo reboot"),
            _EARLIEST_XID,
        ),
        detail=r"(?: GPU recovery action changed from"
        r" \w{1,10} \([^)\n]{1,40}\) to \w{1,10} \((?P<action>[^)\n]{1,40})\))?",
        is_echo=True,
    ),
    _xid(
        158,
        summary="A unit of the GPU did not respond, and the driver stopped waiting for it.",
        context=ContextState.RESET,
        causes=("The hardware or the firmware.",),
        fixes=(shared_fixes.RESET_GPU, _REBOOT, _REPORT_TO_VENDOR),
    ),
    # GPU memory
    _xid(
        48,
        summary="The GPU's memory returned data with more flipped bits than ECC can correct.",
        context=ContextState.RESET,
        causes=("A memory cell failed, once or permanently.", "Rarely power or heat."),
        fixes=(
            _EARLIEST_XID,
            shared_fixes.MEMORY_ERRORS,
            shared_fixes.RESET_GPU,
            _REBOOT,
            _REPORT_TO_VENDOR,
        ),
    ),
    _xid(
        63,
        summary="The driver recorded a row or page of memory that is no longer used; this is a repair, not a fault.",
        context=ContextState.ALIVE,
        causes=("An earlier memory error, corrected or uncorrected.",),
        fixes=(
            Fix("Let programs continue."),
            shared_fixes.MEMORY_ERRORS,
            _RESET_WHEN_IDLE,
            Fix("If many occur on one GPU, have the vendor check it before its spare rows are used up."),
        ),
    ),
    _xid(
        64,
        summary="The driver could not record a failing row or page of memory, so the row or page may be used again.",
        context=ContextState.RESET,
        causes=("No spare row is left.", "The InfoROM, in which the GPU records such rows, is failing."),
        fixes=(_STOP_WORK, shared_fixes.RESET_GPU, shared_fixes.MEMORY_ERRORS, _REPORT_TO_VENDOR),
    ),
    _xid(
        92,
        summary="The GPU's memory had more single-bit errors than usual; ECC corrected all of them.",
        context=ContextState.ALIVE,
        causes=("The memory is starting to fail.",),
        fixes=(
            Fix("Let programs continue: no data was lost."),
            shared_fixes.MEMORY_ERRORS,
            Fix("If the error returns, have the hardware vendor check the GPU."),
        ),
    ),
    _xid(
        94,
        summary="An uncorrectable memory error affected one program and no other.",
        context=ContextState.DEAD,
        causes=("A memory cell failed.",),
        fixes=(_RESTART_PROGRAM, _RESET_WHEN_IDLE, shared_fixes.MEMORY_ERRORS),
    ),
    _xid(
        95,
        summary="An uncorrectable memory error may have affected every program on the GPU.",
        context=ContextState.RESET,
        causes=("Part of the memory, or of the data path to it, failed.",),
        fixes=(_STOP_WORK, shared_fixes.RESET_GPU, shared_fixes.MEMORY_ERRORS, _REPORT_TO_VENDOR),
    ),
    _xid(
        140,
        summary="A memory error occurred that the driver could not contain, so the failing memory stays in use.",
        context=ContextState.RESET,
        causes=("Memory that the driver itself uses failed.",),
        fixes=(_STOP_WORK, shared_fixes.RESET_GPU, _REBOOT, _REPORT_TO_VENDOR),
    ),
    _xid(
        171,
        summary="This Xid adds to an Xid 48 that the error was in the GPU's DRAM.",
        context=ContextState.RESET,
        causes=("A cell of the DRAM failed; a spare row can replace its row.",),
        fixes=(_EARLIEST_XID, shared_fixes.MEMORY_ERRORS, shared_fixes.RESET_GPU, _REPORT_TO_VENDOR),
    ),
    _xid(
        172,
        summary="This Xid adds to an Xid 48 that the error was in the GPU's SRAM: a cache or a register.",
        context=ContextState.RESET,
        causes=("An SRAM cell in the chip failed; SRAM has no spare cells.",),
        fixes=(_EARLIEST_XID, shared_fixes.MEMORY_ERRORS, shared_fixes.RESET_GPU, _REPORT_TO_VENDOR),
    ),
)
