"""Xids of programs, links, the bus, the firmware and of what the driver asks for."""

from typing import Final

from gpumon.diagnosis.catalogue.shared import LAUNCH_BLOCKING, LINKS, LOWER_POWER, SANITIZER
from gpumon.diagnosis.catalogue.xid import (
    NEIGHBOURS,
    REBOOT,
    REPLACE,
    RESET,
    RESTART_PROGRAM,
    xid,
)
from gpumon.diagnosis.known import Context, Fix

_WAIT_FOR_DEBUGGER: Final = Fix(
    "Let the program wait at the fault, and attach cuda-gdb.",
    "CUDA_DEVICE_WAITS_ON_EXCEPTION=1 python train.py",
)
_NO_GSP: Final = Fix(
    "If it comes back, upgrade the driver; where the closed kernel module is in use, it can do without this firmware.",
    "echo 'options nvidia NVreg_EnableGpuFirmware=0' | sudo tee /etc/modprobe.d/nvidia-gsp.conf",
)

_OF_PROGRAMS: Final = (
    xid(
        13,
        title="fault of a kernel",
        summary="A kernel did what the GPU refuses: an address out of range or misaligned, an illegal instruction.",
        context=Context.DEAD,
        causes=(
            "A bug of the program or of a kernel that it uses.",
            "If many different programs show it on one GPU alone, the hardware or the driver.",
        ),
        fixes=(RESTART_PROGRAM, LAUNCH_BLOCKING, SANITIZER, _WAIT_FOR_DEBUGGER, REPLACE),
    ),
    xid(
        31,
        title="memory page fault",
        summary="A kernel used an address for which the GPU has no memory mapped.",
        context=Context.DEAD,
        causes=(
            "A bug of the program: an index out of range, memory used after it was freed, a pointer of another GPU.",
            "Rarely the driver or the hardware.",
        ),
        fixes=(RESTART_PROGRAM, LAUNCH_BLOCKING, SANITIZER, _WAIT_FOR_DEBUGGER),
    ),
    xid(
        43,
        title="program stopped on the GPU",
        summary="The GPU stopped the work of one program after a fault in it; the GPU itself is healthy.",
        context=Context.DEAD,
        causes=("A kernel's fault or assert, which the program's own log tells.", "Another Xid just before."),
        fixes=(
            Fix("Leave the GPU as it is, and look at the program's log for its error."),
            NEIGHBOURS,
        ),
        is_echo=True,
    ),
    xid(
        45,
        title="work removed from the GPU",
        summary="The driver took a program's work off the GPU, as it does at the program's end or after another error.",
        context=Context.DEAD,
        causes=(
            "The program was killed, crashed, or was stopped with Ctrl-C.",
            "Another Xid came before; then that one is the cause.",
        ),
        fixes=(NEIGHBOURS, RESTART_PROGRAM),
        is_echo=True,
    ),
    xid(
        137,
        title="faulty access over NVLink",
        summary="A program used an address of another GPU's memory that it may not use.",
        context=Context.DEAD,
        causes=(
            "A bug of the program: memory of a process that has ended, or an index out of range.",
            "Rarely the driver or the link.",
        ),
        fixes=(
            Fix(
                "The GPU needs no action of yours; start the program again, and look at all ranks for the first error."
            ),
            SANITIZER,
            _WAIT_FOR_DEBUGGER,
        ),
    ),
)

_OF_LINKS: Final = (
    xid(
        74,
        title="NVLink error",
        summary="A link between this GPU and another one, or a switch, has failed.",
        context=Context.RESET,
        causes=(
            "The GPU at the other end failed or was reset, and this is only the end of the link that noticed.",
            "A bridge, a plug or a switch is failing.",
        ),
        fixes=(NEIGHBOURS, LINKS, RESET, REBOOT, REPLACE),
    ),
    xid(
        79,
        title="GPU has fallen off the bus",
        summary="The driver cannot reach the GPU over PCI Express any more.",
        context=Context.RESET,
        causes=(
            "The link went down: power, a cable, the seat of the card, heat.",
            "The GPU is failing, or rarely the driver.",
        ),
        fixes=(
            Fix(
                "Reboot the machine itself, not a virtual one within it; if that is not enough, switch it off.",
                "sudo reboot",
            ),
            Fix("Look for errors of the bus just before.", "sudo dmesg -T | grep -i -E 'pcie|aer'"),
            LOWER_POWER,
            REPLACE,
        ),
    ),
    xid(
        121,
        title="corrected error of the link to the CPU",
        summary="The link between the GPU and its Grace CPU had an error, which was corrected.",
        context=Context.ALIVE,
        causes=("Noise on the link; it has no effect on programs.",),
        fixes=(
            Fix("Let programs go on; a reset at a quiet time trains the link anew."),
            REPLACE,
        ),
    ),
    xid(
        149,
        title="NVLink error (Blackwell)",
        summary="The part of a link that carries data between GPUs reported an error; its sub-code says how bad it is.",
        context=Context.UNKNOWN,
        causes=("The link went down or had many bit errors.", "The other end, or a switch, failed or was reset."),
        fixes=(
            Fix("See whether an Xid 154 follows: it names what has to be done.", "sudo dmesg -T | grep 'Xid.*: 154,'"),
            LINKS,
            RESET,
            REPLACE,
        ),
    ),
)

_OF_DEVICE: Final = (
    xid(
        109,
        title="switch between programs timed out",
        summary="The GPU did not change from one program's work to another's in time.",
        context=Context.RESET,
        causes=(
            "A kernel that does not stop, or a fault in it.",
            "The driver, its firmware or the hardware.",
        ),
        fixes=(RESET, RESTART_PROGRAM, REBOOT, REPLACE),
    ),
    xid(
        119,
        title="firmware does not answer",
        summary="The driver asked the GPU's firmware (GSP) for something and got no answer in time.",
        context=Context.RESET,
        causes=("A bug of the firmware or the driver.", "The GPU is failing, or has lost power or its bus."),
        fixes=(RESET, REBOOT, _NO_GSP, REPLACE),
    ),
    xid(
        120,
        title="firmware failed",
        summary="The GPU's firmware (GSP) met an error of its own.",
        context=Context.RESET,
        causes=("A bug of the firmware or the driver.", "The GPU is failing."),
        fixes=(RESET, REBOOT, _NO_GSP, REPLACE),
    ),
    xid(
        143,
        title="GPU could not be initialized",
        summary="The driver could not bring the GPU into a state in which it works.",
        context=Context.RESET,
        causes=("A failed reset or start before.", "Firmware or hardware."),
        fixes=(RESET, REBOOT, REPLACE),
    ),
    xid(
        154,
        title="what the GPU needs has changed",
        summary="The driver says what has to be done after another Xid: nothing, a drain, a reset or a reboot.",
        context=Context.UNKNOWN,
        causes=("The Xid before it.",),
        fixes=(
            Fix("Do what stands behind `to`: Reset Required or FLR is a reset, Node Reboot or OS Reboot a reboot."),
            RESET,
            Fix("Where it asks for a reboot, reboot.", "sudo reboot"),
            NEIGHBOURS,
        ),
        detail=r"(?: GPU recovery action changed from"
        r" \w{1,10} \([^)\n]{1,40}\) to \w{1,10} \((?P<action>[^)\n]{1,40})\))?",
        is_echo=True,
    ),
    xid(
        158,
        title="fatal timeout",
        summary="A part of the GPU did not answer, and the driver gave it up.",
        context=Context.RESET,
        causes=("The hardware or the firmware.",),
        fixes=(RESET, REBOOT, REPLACE),
    ),
)

ERRORS: Final = (*_OF_PROGRAMS, *_OF_LINKS, *_OF_DEVICE)
