"""Xids of the links between GPUs, NVSwitches and the CPU; those of NVLink 5 name a unit, a severity and a link."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes as shared_fixes
from gpumon.diagnosis.catalogue.xid_form import EARLIEST_XID, REBOOT, REPORT_TO_VENDOR, RESTART_PROGRAM, xid
from gpumon.diagnosis.known import ContextState, Fix, KnownError

_LINK_EVENT: Final = (
    r" {1,4}(?P<unit>[A-Z][A-Z0-9_/]{2,40}) {1,4}(?P<severity>Nonfatal|Fatal) {1,4}XC\d i\d Link (?P<link>-?\d{1,3})"
)
"""The unit, the severity and the link, as drivers from 560 on write them for NVLink 5 (Blackwell)."""

_REQUIRED_ACTION: Final = Fix(
    "Check whether an Xid 154 follows, which names the required action; without one, let programs continue.",
    "sudo dmesg -T | grep 'Xid.*: 154,'",
)


def _nvlink5(number: int, summary: str, *causes: str, detail: str = _LINK_EVENT) -> KnownError:
    """An Xid of a unit of NVLink 5, whose required action depends on the severity in the message."""
    return xid(
        number,
        summary=summary,
        context=ContextState.UNKNOWN,
        causes=(*causes, "Fatal: the link no longer works. Nonfatal: an event that the unit has handled."),
        fixes=(_REQUIRED_ACTION, shared_fixes.RESET_GPU, shared_fixes.LINK_STATE, REPORT_TO_VENDOR),
        detail=f"(?:{detail})?",
    )


ERRORS: Final[tuple[KnownError, ...]] = (
    xid(
        108,
        summary="A program accessed another GPU's memory over NVLink at an address that the other GPU does not map.",
        context=ContextState.DEAD,
        causes=("A bug in the program: memory of a process that has ended, or an index out of range.",),
        fixes=(RESTART_PROGRAM, EARLIEST_XID, shared_fixes.SANITIZER),
    ),
    xid(
        136,
        summary="A link between this GPU and another GPU or an NVSwitch could not be trained.",
        context=ContextState.RESET,
        causes=(
            "The other end is in reset, has failed or is not powered.",
            "A connector or a cable has a bad signal.",
        ),
        fixes=(shared_fixes.RESET_GPU, shared_fixes.LINK_STATE, REBOOT, REPORT_TO_VENDOR),
    ),
    _nvlink5(
        144,
        "The unit that connects NVLink to the GPU's crossbar (SAW) reported an error.",
        "A memory cell of the unit failed, or an invalid packet arrived.",
    ),
    _nvlink5(
        145,
        "The receiving part of an NVLink (RLW) reported an error; a request may have timed out.",
        "The GPU or the process at the other end failed or was reset, so that it did not answer.",
        "A memory cell of the unit failed.",
    ),
    _nvlink5(
        146,
        "The transmitting part of an NVLink (TLW) reported an error.",
        "A memory cell of the unit failed, or an invalid packet was sent.",
    ),
    _nvlink5(147, "The test unit of an NVLink (TREX) reported an error.", "A test of the link failed."),
    _nvlink5(148, "The control unit of an NVLink (NVLPW) reported an error.", "A fault within the unit."),
    _nvlink5(
        149,
        "The data layer of an NVLink on Blackwell reported an error; the message contains its severity.",
        "The link went down or had many bit errors.",
        "The other end, or an NVSwitch, failed or was reset.",
    ),
    _nvlink5(
        150,
        "The firmware that manages the NVLinks (MSE) failed or did not respond.",
        "A fault in the firmware.",
    ),
    xid(
        155,
        summary="The driver or the Fabric Manager took a link down after an error that it had detected.",
        context=ContextState.RESET,
        causes=("An earlier error of the link or of the GPU at its other end.", "A fault in the NVLink software."),
        fixes=(
            EARLIEST_XID,
            shared_fixes.RESET_GPU,
            Fix("Read the log of the Fabric Manager.", "sudo tail -n 50 /var/log/fabricmanager.log"),
            REPORT_TO_VENDOR,
        ),
    ),
    xid(
        166,
        summary="In confidential computing, NVLink traffic arrived before the link was configured for encryption.",
        context=ContextState.UNKNOWN,
        causes=("The link's keys were not ready: the Fabric Manager or the driver.",),
        fixes=(shared_fixes.REBOOT, REPORT_TO_VENDOR),
    ),
    xid(
        170,
        summary="In confidential computing, a link reported an error.",
        context=ContextState.UNKNOWN,
        causes=("An earlier error of the link.",),
        fixes=(EARLIEST_XID, shared_fixes.RESET_GPU, REPORT_TO_VENDOR),
    ),
    xid(
        173,
        summary="The NVLink-C2C link between the GPU and its Grace CPU failed.",
        context=ContextState.RESET,
        causes=("The hardware of the module.",),
        fixes=(Fix("Reboot the host; a reset of the GPU does not reach the link.", "sudo reboot"), REPORT_TO_VENDOR),
    ),
)
