"""Xids of the GPU's engines, its firmware, its flash memory and its power; most of them are rare."""

from typing import Final

from gpumon.core.xids import XID_MEANINGS
from gpumon.diagnosis.catalogue import fixes as shared_fixes
from gpumon.diagnosis.catalogue import sources
from gpumon.diagnosis.catalogue.wording import BELOW_PYTORCH
from gpumon.diagnosis.catalogue.xid_form import (
    EARLIEST_XID,
    REBOOT,
    REPORT_TO_VENDOR,
    RESTART_PROGRAM,
    SECTION,
    WAIT_FOR_DEBUGGER,
    xid,
)
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_UPGRADE: Final = Fix("If the error returns, upgrade the driver.")
_NO_ACTION: Final = Fix("Let programs continue: no action is required.")
_EARLIER_PROGRAM_ERROR: Final = "A fault in a program, or an earlier Xid."

_COPY_ENGINES: Final = (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136))
_VIDEO_DECODERS: Final = (68, 83, 84, 88, 89, 96, 97, 98)
_VIDEO_ENCODERS: Final = (65, 73, 142)
_JPEG_DECODERS: Final = (82, *range(99, 106))
_OPTICAL_FLOW: Final = (86, 139)


def _engine(number: int, task: str) -> KnownError:
    """An Xid of an engine; NVIDIA recommends to restart the program."""
    return xid(
        number,
        summary=f"The engine that {task} raised an exception and stopped the work of one program.",
        context=ContextState.DEAD,
        causes=(
            "The program gave the engine an invalid address or invalid data.",
            "An earlier Xid, such as a memory error or a page fault.",
            "Rarely the driver or the hardware.",
        ),
        fixes=(RESTART_PROGRAM, EARLIEST_XID, _UPGRADE, REPORT_TO_VENDOR),
    )


def _commands(number: int) -> KnownError:
    """An Xid of an invalid command; NVIDIA recommends to restart the program."""
    return xid(
        number,
        summary="The GPU received an invalid command from a program's stream of commands.",
        context=ContextState.DEAD,
        causes=(
            "A program that overwrites its own memory, or a bug in the driver.",
            "Data that was damaged on its way to the GPU: the PCIe link, or the host's memory.",
        ),
        fixes=(
            RESTART_PROGRAM,
            Fix("Look for PCIe errors in the kernel log.", "sudo dmesg -T | grep -i -E 'pcie|aer'"),
            _UPGRADE,
            REPORT_TO_VENDOR,
        ),
    )


def _firmware(number: int, summary: str) -> KnownError:
    """An Xid of the firmware that runs on the GPU; the GPU must be reset."""
    return xid(
        number,
        summary=summary,
        context=ContextState.RESET,
        causes=("A bug in the firmware or the driver.", "The GPU is failing, or its power is unstable."),
        fixes=(shared_fixes.RESET_GPU, REBOOT, _UPGRADE, REPORT_TO_VENDOR),
    )


def _event(number: int, summary: str, cause: str, *more: Fix) -> KnownError:
    """An Xid that needs no action."""
    return xid(
        number,
        summary=summary,
        context=ContextState.ALIVE,
        causes=(cause,),
        fixes=(_NO_ACTION, *more),
        is_echo=True,
    )


_ENGINES: Final = (
    *(_engine(number, "copies memory") for number in _COPY_ENGINES),
    *(_engine(number, "decodes video") for number in _VIDEO_DECODERS),
    *(_engine(number, "encodes video") for number in _VIDEO_ENCODERS),
    *(_engine(number, "decodes JPEG images") for number in _JPEG_DECODERS),
    *(_engine(number, "computes optical flow") for number in _OPTICAL_FLOW),
    _engine(60, "processes video"),
)
_COMMANDS: Final = tuple(_commands(number) for number in (11, 25, 32, 80))
_FIRMWARE: Final = (
    _firmware(46, "The GPU stopped processing and did not respond to the driver."),
    _firmware(59, "The controller of the GPU's power and clocks (PMU) reported an error."),
    _firmware(61, "The controller of the GPU's power and clocks (PMU) stopped at a breakpoint."),
    _firmware(62, "The controller of the GPU's power and clocks (PMU) halted."),
    _firmware(110, "The security processor of the GPU reported a fault."),
    _firmware(169, "The security processor of the GPU (SEC2) halted."),
)
_EVENTS: Final = (
    _event(37, "The scheduler firmware received a method that it does not know.", _EARLIER_PROGRAM_ERROR),
    _event(38, "The scheduler firmware of the GPU did not finish in time.", _EARLIER_PROGRAM_ERROR, EARLIEST_XID),
    _event(44, "The graphics engine had a fault while it switched programs.", _EARLIER_PROGRAM_ERROR, EARLIEST_XID),
    _event(66, "The driver or a program accessed a register that it may not access.", "The driver.", _UPGRADE),
    _event(67, "The driver or a program accessed a register that it may not access.", "The driver.", _UPGRADE),
    _event(
        93,
        "The driver wrote to the InfoROM more often than intended; later writes are dropped.",
        "Many events that the GPU records, such as memory errors.",
        shared_fixes.MEMORY_ERRORS,
    ),
    _event(106, "A management controller sent a test message.", "The server's management controller."),
    _event(107, "A management controller sent a test message.", "The server's management controller."),
    _event(
        141,
        "A fast launch path of CUDA had an error and was not used.",
        _EARLIER_PROGRAM_ERROR,
        EARLIEST_XID,
    ),
    _event(152, "The deep learning accelerator (DLA) accessed an address that is not mapped.", "A program of the DLA."),
    _event(153, "The deep learning accelerator (DLA) did not finish in time.", "A program of the DLA."),
    _event(160, "The GPU retired a channel of its memory and uses a spare one.", "An earlier memory error."),
    _event(162, "The GPU smooths its power draw again.", "The circuitry has recovered."),
    _event(163, "The GPU no longer smooths its power draw.", "The circuitry is too hot or was switched off."),
)

_LISTED: Final = "|".join(map(str, XID_MEANINGS))
_OTHER: Final = KnownError(
    id="xid-other",
    section=SECTION,
    title="Xid without a published meaning",
    summary="The driver reported an error of a GPU whose number NVIDIA's catalog lists as unused or not at all.",
    context=ContextState.UNKNOWN,
    patterns=(
        Pattern(
            "NVRM: Xid (",
            r"NVRM: Xid \((?:PCI:)?(?P<bus>[\w:.]{4,20})(?: GPU-I:\d{1,3})?\): "
            rf"(?!(?:{_LISTED}),)(?P<number>\d{{1,4}}),",
        ),
    ),
    causes=("The driver, the GPU's firmware or the hardware.",),
    fixes=(
        EARLIEST_XID,
        Fix("Restart the program; if the error returns, reboot the host.", "sudo reboot"),
        REPORT_TO_VENDOR,
    ),
    empty_cache=BELOW_PYTORCH,
    sources=(sources.XID_CATALOG,),
)
"""An Xid without an entry for its number."""

ERRORS: Final[tuple[KnownError, ...]] = (
    _OTHER,
    *_ENGINES,
    *_COMMANDS,
    *_FIRMWARE,
    *_EVENTS,
    xid(
        8,
        summary="A program's work on the GPU did not finish in time, and the driver removed it.",
        context=ContextState.DEAD,
        causes=(
            "A kernel that runs too long on a GPU with a display, or does not end.",
            "The GPU is in a bad state after an earlier Xid.",
        ),
        fixes=(RESTART_PROGRAM, EARLIEST_XID, WAIT_FOR_DEBUGGER, REPORT_TO_VENDOR),
    ),
    xid(
        69,
        summary="A program sent the compute engine a command with invalid values.",
        context=ContextState.DEAD,
        causes=("A bug in the program, in a library, or in the driver.", "Rarely damaged data or the hardware."),
        fixes=(RESTART_PROGRAM, shared_fixes.SANITIZER, _UPGRADE, REPORT_TO_VENDOR),
    ),
    xid(
        54,
        summary="The power connector of the card delivers no power.",
        context=ContextState.RESET,
        causes=("A power cable is missing, loose or damaged, or the power supply is too weak.",),
        fixes=(Fix("Power the host off, check the power cables of the card, and start it again."), REPORT_TO_VENDOR),
    ),
    xid(
        56,
        summary="The display engine reported an error; compute work is usually not affected.",
        context=ContextState.ALIVE,
        causes=("A bug in the driver, or a display that was connected or changed its mode.",),
        fixes=(_NO_ACTION, _UPGRADE),
    ),
    xid(
        57,
        summary="The driver could not set up the interface to the GPU's memory.",
        context=ContextState.RESET,
        causes=("The GPU is failing.", "Rarely the driver."),
        fixes=(shared_fixes.REBOOT, REPORT_TO_VENDOR),
    ),
    xid(
        58,
        summary="The interface to the GPU's memory is unstable.",
        context=ContextState.RESET,
        causes=("The GPU is failing, or its memory clock was raised too far.",),
        fixes=(shared_fixes.REBOOT, REPORT_TO_VENDOR),
    ),
    xid(
        78,
        summary="A virtual GPU could not be started.",
        context=ContextState.NOT_APPLICABLE,
        causes=("The vGPU software of the host and the driver of the guest do not fit together, or no license.",),
        fixes=(Fix("Install a guest driver of the same vGPU release as the host's."), REPORT_TO_VENDOR),
    ),
    *(
        xid(
            number,
            summary=f"The driver could not {action} the flash memory of the GPU's firmware.",
            context=ContextState.UNKNOWN,
            causes=("The flash memory or its firmware.",),
            fixes=(shared_fixes.REBOOT, REPORT_TO_VENDOR),
        )
        for number, action in ((122, "read"), (123, "write to"), (124, "erase"), (125, "use the InfoROM in"))
    ),
    xid(
        151,
        summary="In confidential computing, the driver and the GPU could not agree on a new key.",
        context=ContextState.RESET,
        causes=("An earlier error, or a bug in the driver.",),
        fixes=(Fix("Restart the virtual machine.", "sudo reboot"), REPORT_TO_VENDOR),
    ),
    xid(
        156,
        summary="The GPU will retire a failing part of itself; this takes effect at the next reset.",
        context=ContextState.RESET,
        causes=("An earlier uncorrectable error.",),
        fixes=(shared_fixes.RESET_GPU, shared_fixes.MEMORY_ERRORS),
    ),
    *(
        xid(
            number,
            summary=f"The GPU could not retire a failing {part}, so it may fail again.",
            context=ContextState.UNKNOWN,
            causes=("No spare part is left.", "The InfoROM is failing."),
            fixes=(shared_fixes.MEMORY_ERRORS, REPORT_TO_VENDOR),
        )
        for number, part in ((157, "part of itself"), (161, "channel of its memory"))
    ),
    xid(
        159,
        summary="An access between the CPU and the GPU over the coherent link failed.",
        context=ContextState.DEAD,
        causes=("A program accessed host memory that is not valid.", "An earlier error of the link."),
        fixes=(RESTART_PROGRAM, EARLIEST_XID, REPORT_TO_VENDOR),
    ),
    *(
        xid(
            number,
            summary=f"The circuitry that smooths the GPU's power draw {state}.",
            context=ContextState.ALIVE,
            causes=("Normal wear under changing load.",),
            fixes=(_NO_ACTION, Fix("Inform the hardware vendor.")),
        )
        for number, state in ((164, "is near the end of its life"), (165, "has reached the end of its life"))
    ),
    xid(
        167,
        summary="A request over PCI Express got no answer in time, and the driver gave the GPU up.",
        context=ContextState.RESET,
        causes=("The PCIe link, the slot, or the root port.", "The GPU is failing."),
        fixes=(
            shared_fixes.REBOOT,
            Fix("Look for PCIe errors in the kernel log.", "sudo dmesg -T | grep -i -E 'pcie|aer'"),
        ),
    ),
    xid(
        168,
        summary="The GPU found errors in protected memory and now offers less memory.",
        context=ContextState.ALIVE,
        causes=("A part of the memory failed.",),
        fixes=(Fix("Compare the total memory with that of other GPUs.", "nvidia-smi -q -d MEMORY"), REPORT_TO_VENDOR),
    ),
    xid(
        175,
        summary="The memory subsystem of the GPU reported an error.",
        context=ContextState.RESET,
        causes=("The memory, or the path to it, failed.",),
        fixes=(EARLIEST_XID, shared_fixes.RESET_GPU, shared_fixes.MEMORY_ERRORS, REPORT_TO_VENDOR),
    ),
    xid(
        176,
        summary="The PCIe link of the GPU has many errors, which were corrected.",
        context=ContextState.ALIVE,
        causes=("The seating of the card, a riser, or the slot.",),
        fixes=(
            Fix("Check the link's speed and width under load.", "nvidia-smi -q | grep -A 20 'GPU Link Info'"),
            Fix("Reseat the card, or try another slot."),
            REPORT_TO_VENDOR,
        ),
    ),
)
