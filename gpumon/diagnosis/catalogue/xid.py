"""What all Xids have in common: how a line of the kernel log reads, and which step mends what."""

from typing import Final

from gpumon.diagnosis.catalogue.shared import BELOW_PYTORCH, CONTEXT_IS_DEAD, RESET_GPU, XID_CATALOG
from gpumon.diagnosis.known import Context, Fix, KnownError, Pattern

_SECTION: Final = "Xids of the kernel log"
_NEEDLE: Final = "NVRM: Xid ("

RESTART_PROGRAM: Final = Fix("Start the program again; the others on the GPU may go on.")
RESET: Final = RESET_GPU
REBOOT: Final = Fix("If the reset fails or does not help, reboot the machine.", "sudo reboot")
REPLACE: Final = Fix(
    "If it comes back on the same GPU, have the hardware vendor look at it: collect a report.",
    "sudo nvidia-bug-report.sh",
)
MEMORY_ERRORS: Final = Fix(
    "See how many errors were counted, and whether a row waits to be remapped.",
    "nvidia-smi -q -d ECC,ROW_REMAPPER",
)
NEIGHBOURS: Final = Fix("Read the Xids of the same second: the first of them counts.", "sudo dmesg -T | grep -i xid")


def xid(
    number: int,
    *,
    title: str,
    summary: str,
    context: Context,
    causes: tuple[str, ...],
    fixes: tuple[Fix, ...],
    detail: str = "",
    is_echo: bool = False,
) -> KnownError:
    """An entry for an Xid.

    Args:
        number: The number that the driver gives it.
        title: What it is, in a few words.
        summary: What happened, in one sentence.
        context: What is left of the contexts on the GPU.
        causes: What leads to it, most frequent first.
        fixes: NVIDIA's recommended action first.
        detail: A regular expression for what may follow in the line.
        is_echo: Whether it mostly follows another Xid or an error of the program.
    """
    line = (
        rf"NVRM: Xid \((?:PCI:)?(?P<bus>[\w:.]{{4,20}})\): {number},"
        r"(?: pid=(?:(?P<pid>\d{1,10})|'<unknown>'),?)?(?: name=(?:(?P<name>[^,<\n]{1,64})|<unknown>),?)?"
    )
    return KnownError(
        id=f"xid-{number}",
        section=_SECTION,
        title=f"Xid {number}: {title}",
        summary=summary,
        context=context,
        patterns=(Pattern(_NEEDLE, line + detail),),
        causes=causes,
        fixes=fixes,
        empty_cache=CONTEXT_IS_DEAD if context is Context.DEAD else BELOW_PYTORCH,
        sources=(XID_CATALOG,),
        is_echo=is_echo,
    )
