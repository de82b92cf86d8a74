"""What two snapshots differ in: which stacks hold more in the second, and which hold less."""

from gpumon.snapshots.model import NOTHING, Amount, DeviceMemory, Frame, Snapshot
from gpumon.snapshots.tree import Measure, Share, is_in


def changes(
    before: tuple[Snapshot, DeviceMemory | None],
    after: tuple[Snapshot, DeviceMemory],
    measure: Measure,
    *,
    innermost_first: bool,
    wanted: str = "",
) -> list[Share]:
    """Every stack whose amount is another one, by its frames: their numbers are those of one file only.

    Args:
        before: The first file and its device, None if it has not that device.
        after: The second one.
        measure: Which amount.
        innermost_first: Whether the frame that allocated comes first, or where the program began.
        wanted: Only stacks that have this text in a frame.
    """
    first, second = _amounts(*before, measure), _amounts(*after, measure)
    found = []
    for frames in dict.fromkeys((*second, *first)):
        amount, was = second.get(frames, NOTHING), first.get(frames, NOTHING)
        if amount != was and is_in(frames, wanted):
            found.append(Share(frames if innermost_first else frames[::-1], amount, was))
    return found


def _amounts(snapshot: Snapshot, device: DeviceMemory | None, measure: Measure) -> dict[tuple[Frame, ...], Amount]:
    found: dict[tuple[Frame, ...], Amount] = {}
    for use in () if device is None else device.uses:
        amount = measure.of(use)
        if amount.blocks:
            frames = snapshot.frames_of(use.stack)
            found[frames] = found.get(frames, NOTHING) + amount
    return found
