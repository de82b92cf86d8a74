"""Xids: errors that the NVIDIA driver writes to the kernel log, here those that are met most often."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes as shared_fixes
from gpumon.diagnosis.catalogue.xid_form import (
    DISABLE_GSP,
    EARLIEST_XID,
    REBOOT,
    REPORT_TO_VENDOR,
    RESET_WHEN_IDLE,
    RESTART_PROGRAM,
    STOP_WORK,
    WAIT_FOR_DEBUGGER,
    xid,
)
from gpumon.diagnosis.known import ContextState, Fix, KnownError

ERRORS: Final[tuple[KnownError, ...]] = (
    # Faults of programs
    xid(
        13,
        summary="A kernel accessed an address out of range or misaligned, or executed an illegal instruction.",
        context=ContextState.DEAD,
        causes=(
            "A bug in the program or in a kernel that it uses.",
            "If many different programs fail on the same GPU only: the hardware or the driver.",
        ),
        fixes=(
            RESTART_PROGRAM,
            shared_fixes.LAUNCH_BLOCKING,
            shared_fixes.SANITIZER,
            WAIT_FOR_DEBUGGER,
            REPORT_TO_VENDOR,
        ),
    ),
    xid(
        31,
        summary="A kernel accessed an address at which the GPU has no memory mapped.",
        context=ContextState.DEAD,
        causes=(
            "A bug in the program: an index out of range, a use of freed memory, or a pointer to another GPU's memory.",
            "Rarely the driver or the hardware.",
        ),
        fixes=(
            RESTART_PROGRAM,
            shared_fixes.LAUNCH_BLOCKING,
            shared_fixes.SANITIZER,
            WAIT_FOR_DEBUGGER,
            Fix("If the kernel belongs to a library or a server, upgrade that, or report the error to its project."),
        ),
    ),
    xid(
        43,
        summary="The GPU stopped the work of one program after a fault in that program; the GPU itself is healthy.",
        context=ContextState.DEAD,
        causes=("A fault or an assert in a kernel, which the program's own log reports.", "An earlier Xid."),
        fixes=(
            Fix("Take no action on the GPU; find the error in the program's log."),
            EARLIEST_XID,
        ),
        is_echo=True,
    ),
    xid(
        45,
        summary="The driver removed a program's work from the GPU, because the program ended or after another error.",
        context=ContextState.DEAD,
        causes=(
            "The program was killed, crashed, or was stopped with Ctrl-C.",
            "An earlier Xid, which is then the cause.",
        ),
        fixes=(
            EARLIEST_XID,
            RESTART_PROGRAM,
            Fix(
                "The Xid at the end of the line is the cause; 144 to 150 are errors of NVLink, which `gpumon explain"
                " --id xid-149` and others explain.",
                first_for=("caused by previous Xid",),
                hidden_otherwise=True,
            ),
        ),
        is_echo=True,
    ),
    xid(
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
            WAIT_FOR_DEBUGGER,
        ),
    ),
    # Links and the PCIe bus
    xid(
        74,
        summary="A link between this GPU and another GPU or an NVSwitch failed.",
        context=ContextState.RESET,
        causes=(
            "The GPU at the other end failed or was reset, and this end of the link only detected that.",
            "A bridge, a connector or an NVSwitch is failing.",
        ),
        fixes=(EARLIEST_XID, shared_fixes.LINK_STATE, shared_fixes.RESET_GPU, REBOOT, REPORT_TO_VENDOR),
    ),
    xid(
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
            REPORT_TO_VENDOR,
        ),
    ),
    xid(
        121,
        summary="The NVLink-C2C link between the GPU and its Grace CPU had an error, which was corrected.",
        context=ContextState.ALIVE,
        causes=("Noise on the link; it has no effect on programs.",),
        fixes=(
            Fix("Let programs continue; a reset when the GPU is idle retrains the link."),
            REPORT_TO_VENDOR,
        ),
    ),
    # The GPU and its firmware
    xid(
        109,
        summary="The GPU did not switch from one program's work to another's in time.",
        context=ContextState.RESET,
        causes=(
            "A kernel that does not end, or a fault in a kernel.",
            "The driver, its firmware or the hardware.",
        ),
        fixes=(shared_fixes.RESET_GPU, RESTART_PROGRAM, REBOOT, REPORT_TO_VENDOR),
    ),
    xid(
        119,
        summary="The driver sent a request to the GPU's firmware (GSP) and received no answer in time.",
        context=ContextState.RESET,
        causes=("A bug in the firmware or the driver.", "The GPU is failing, or has lost power or its PCIe link."),
        fixes=(shared_fixes.RESET_GPU, REBOOT, DISABLE_GSP, REPORT_TO_VENDOR),
    ),
    xid(
        120,
        summary="The GPU's firmware (GSP) failed with an internal error.",
        context=ContextState.RESET,
        causes=("A bug in the firmware or the driver.", "The GPU is failing."),
        fixes=(shared_fixes.RESET_GPU, REBOOT, DISABLE_GSP, REPORT_TO_VENDOR),
    ),
    xid(
        143,
        summary="The driver could not initialize the GPU.",
        context=ContextState.RESET,
        causes=("An earlier reset or start that failed.", "Firmware or hardware."),
        fixes=(shared_fixes.RESET_GPU, REBOOT, REPORT_TO_VENDOR),
    ),
    xid(
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
            EARLIEST_XID,
        ),
        detail=r"(?: GPU recovery action changed from"
        r" \w{1,10} \([^)\n]{1,40}\) to \w{1,10} \((?P<action>[^)\n]{1,40})\))?",
        is_echo=True,
    ),
    xid(
        158,
        summary="A unit of the GPU did not respond, and the driver stopped waiting for it.",
        context=ContextState.RESET,
        causes=("The hardware or the firmware.",),
        fixes=(shared_fixes.RESET_GPU, REBOOT, REPORT_TO_VENDOR),
    ),
    # GPU memory
    xid(
        48,
        summary="The GPU's memory returned data with more flipped bits than ECC can correct.",
        context=ContextState.RESET,
        causes=("A memory cell failed, once or permanently.", "Rarely power or heat."),
        fixes=(
            EARLIEST_XID,
            shared_fixes.MEMORY_ERRORS,
            shared_fixes.RESET_GPU,
            REBOOT,
            REPORT_TO_VENDOR,
        ),
    ),
    xid(
        63,
        summary="The driver recorded a row or page of memory that is no longer used; this is a repair, not a fault.",
        context=ContextState.ALIVE,
        causes=("An earlier memory error, corrected or uncorrected.",),
        fixes=(
            Fix("Let programs continue."),
            shared_fixes.MEMORY_ERRORS,
            RESET_WHEN_IDLE,
            Fix("If many occur on one GPU, have the vendor check it before its spare rows are used up."),
        ),
    ),
    xid(
        64,
        summary="The driver could not record a failing row or page of memory, so the row or page may be used again.",
        context=ContextState.RESET,
        causes=("No spare row is left.", "The InfoROM, in which the GPU records such rows, is failing."),
        fixes=(STOP_WORK, shared_fixes.RESET_GPU, shared_fixes.MEMORY_ERRORS, REPORT_TO_VENDOR),
    ),
    xid(
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
    xid(
        94,
        summary="An uncorrectable memory error affected one program and no other.",
        context=ContextState.DEAD,
        causes=("A memory cell failed.",),
        fixes=(RESTART_PROGRAM, RESET_WHEN_IDLE, shared_fixes.MEMORY_ERRORS),
    ),
    xid(
        95,
        summary="An uncorrectable memory error may have affected every program on the GPU.",
        context=ContextState.RESET,
        causes=("Part of the memory, or of the data path to it, failed.",),
        fixes=(STOP_WORK, shared_fixes.RESET_GPU, shared_fixes.MEMORY_ERRORS, REPORT_TO_VENDOR),
    ),
    xid(
        140,
        summary="A memory error occurred that the driver could not contain, so the failing memory stays in use.",
        context=ContextState.RESET,
        causes=("Memory that the driver itself uses failed.",),
        fixes=(STOP_WORK, shared_fixes.RESET_GPU, REBOOT, REPORT_TO_VENDOR),
    ),
    xid(
        171,
        summary="This Xid adds to an Xid 48 that the error was in the GPU's DRAM.",
        context=ContextState.RESET,
        causes=("A cell of the DRAM failed; a spare row can replace its row.",),
        fixes=(EARLIEST_XID, shared_fixes.MEMORY_ERRORS, shared_fixes.RESET_GPU, REPORT_TO_VENDOR),
    ),
    xid(
        172,
        summary="This Xid adds to an Xid 48 that the error was in the GPU's SRAM: a cache or a register.",
        context=ContextState.RESET,
        causes=("An SRAM cell in the chip failed; SRAM has no spare cells.",),
        fixes=(EARLIEST_XID, shared_fixes.MEMORY_ERRORS, shared_fixes.RESET_GPU, REPORT_TO_VENDOR),
    ),
)
