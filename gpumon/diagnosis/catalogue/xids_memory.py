"""Xids of the GPU's memory: errors that could not be corrected, and how the driver repairs them."""

from typing import Final

from gpumon.diagnosis.catalogue.xid import MEMORY_ERRORS, NEIGHBOURS, REBOOT, REPLACE, RESET, RESTART_PROGRAM, xid
from gpumon.diagnosis.known import Context, Fix

_STOP_FIRST: Final = Fix("Give the GPU no new work, and end what runs on it: its data may be wrong.")
_AT_A_QUIET_TIME: Final = Fix(
    "Reset the GPU when it is free, so that the spare row is used.",
    "sudo nvidia-smi --gpu-reset -i 0",
)

ERRORS: Final = (
    xid(
        48,
        title="uncorrectable memory error",
        summary="The GPU's memory returned data with more flipped bits than can be corrected.",
        context=Context.RESET,
        causes=("A cell of the memory failed, once or for good.", "Rarely power or heat."),
        fixes=(
            NEIGHBOURS,
            MEMORY_ERRORS,
            RESET,
            REBOOT,
            REPLACE,
        ),
    ),
    xid(
        63,
        title="failing memory is to be replaced by spare",
        summary="The driver noted a piece of the memory not to be used any more; this is a repair, not a fault.",
        context=Context.ALIVE,
        causes=("An error of the memory before, that was corrected or not.",),
        fixes=(
            Fix("Programs may go on."),
            MEMORY_ERRORS,
            _AT_A_QUIET_TIME,
            Fix("If many come on one GPU, have it looked at before its spare rows are used up."),
        ),
    ),
    xid(
        64,
        title="repair of the memory failed",
        summary="The driver could not note a failing piece of the memory, which may thus be used again.",
        context=Context.RESET,
        causes=("No spare row is left.", "The GPU's own store, where such rows are noted, is failing."),
        fixes=(_STOP_FIRST, RESET, MEMORY_ERRORS, REPLACE),
    ),
    xid(
        92,
        title="many corrected memory errors",
        summary="The GPU's memory had single flipped bits more often than is usual; all of them were corrected.",
        context=Context.ALIVE,
        causes=("The memory begins to fail.",),
        fixes=(
            Fix("Programs may go on: no data was lost."),
            MEMORY_ERRORS,
            Fix("If it comes again, have the hardware vendor look at the GPU."),
        ),
    ),
    xid(
        94,
        title="memory error in one program",
        summary="A memory error that could not be corrected reached one program, and this one alone.",
        context=Context.DEAD,
        causes=("A cell of the memory failed.",),
        fixes=(RESTART_PROGRAM, _AT_A_QUIET_TIME, MEMORY_ERRORS),
    ),
    xid(
        95,
        title="memory error in all programs",
        summary="A memory error that could not be corrected may have reached every program on the GPU.",
        context=Context.RESET,
        causes=("A part of the memory or of the way to it failed.",),
        fixes=(_STOP_FIRST, RESET, MEMORY_ERRORS, REPLACE),
    ),
    xid(
        140,
        title="memory error that could not be handled",
        summary="A memory error came in such a way that the driver could not set the failing memory aside.",
        context=Context.RESET,
        causes=("A part of the memory failed, at a place that the driver itself uses.",),
        fixes=(_STOP_FIRST, RESET, REBOOT, REPLACE),
    ),
    xid(
        171,
        title="where the memory error was: DRAM",
        summary="This adds to an Xid 48 that the error was in the GPU's large memory.",
        context=Context.RESET,
        causes=("A cell of the large memory failed; such rows can be replaced by spare ones.",),
        fixes=(NEIGHBOURS, MEMORY_ERRORS, RESET, REPLACE),
    ),
    xid(
        172,
        title="where the memory error was: SRAM",
        summary="This adds to an Xid 48 that the error was in a cache or a register of the GPU.",
        context=Context.RESET,
        causes=("A cell within the chip failed, for which there is no spare.",),
        fixes=(NEIGHBOURS, MEMORY_ERRORS, RESET, REPLACE),
    ),
)
