"""The history of this host before gpumon was opened, as the recorder has kept it."""

import time
from contextlib import closing
from pathlib import Path
from typing import Final

from gpumon.core.problems import CommandError
from gpumon.core.store import BUCKET_SECONDS, HISTORY_BUCKETS, Store
from gpumon.streams.ring import RingReader

_COARSE_STEP_SECONDS: Final = 10.0
_BOOT_SLACK_SECONDS: Final = 60.0


def earlier_history(folder: Path, history_seconds: float) -> Store | None:
    """The history that a ring has of this host since it was booted; None without one.

    Args:
        folder: The ring.
        history_seconds: Length of the history.
    """
    now = time.time()
    try:
        reader = RingReader(folder)
    except CommandError:
        return None
    store = Store(history_seconds=history_seconds)
    booted = now - time.monotonic()
    with closing(reader):
        middle = reader.seconds_at(now - HISTORY_BUCKETS * BUCKET_SECONDS)
        ranges = (
            (reader.seconds_at(now - history_seconds), middle, _COARSE_STEP_SECONDS),
            (middle, reader.seconds_at(now), 1.0),
        )
        for start, end, step in ranges:
            for record in reader.window(start, end, step, lambda: False):
                frame = record.frame
                is_same_boot = abs(booted - frame.time_seconds + frame.monotonic_seconds) < _BOOT_SLACK_SECONDS
                if is_same_boot and now - frame.time_seconds <= history_seconds:
                    store.apply(frame)
    return store if store.frame is not None else None
