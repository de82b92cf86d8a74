"""Counts the steps of a training run and measures their parts, in hooks that run on the threads of the program.

The hooks do nothing that raises an exception, and catch none: one that a signal handler of the program raises while a
hook runs belongs to the program.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from collections import deque
from time import monotonic

from .collections_log import CollectionsLog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_STEPS = 10_000
"""Steps that are kept for the request ``observe``."""
_RECENT_STEPS = 100
"""Steps over which the message ``statistics`` reports times."""
_MAX_OPTIMIZERS = 4096
_LONG_STREAK = 8
"""After more steps of another optimizer, without one of the leading optimizer in between, that one leads."""
_MIN_BACKWARDS = 64
"""After more backward passes without a step of an optimizer they are steps, as in loops without `torch.optim`.
The number rises with the passes between steps: a program may accumulate the gradients of many batches."""


class Training:
    """The steps of this process.

    Where several optimizers step, as in a GAN, only the steps of the one with the most steps count: the leading one.

    Attributes:
        steps: The latest steps: when each ended, in monotonic seconds; its duration, and the parts of it in which the
            training thread waited for data and collected garbage.
        collections: The garbage collections that no step has accounted for yet.
    """

    def __init__(self) -> None:
        self.steps: deque[tuple[float, float, float, float]] = deque(maxlen=MAX_STEPS)
        self.collections = CollectionsLog()
        self._thread = main_thread()
        self._steps_count = 0
        self._batches_count = 0
        self._ended_at: float | None = None
        self._data_seconds = 0.0
        self._waiting_since: float | None = None
        self._depth = 0
        self._leader = 0
        self._leader_steps = 0
        self._others: dict[int, tuple[int, int, int]] = {}
        """Of each other optimizer, by its `id`: its steps, the steps of the leading one at the last of them, and its
        steps since then."""
        self._backwards = 0
        self._is_eager = False
        self._max_backwards = 0
        self._steps_at_scaler_update = 0

    def on_step(self, optimizer: object) -> None:
        """Count a step of an optimizer; called when it ends."""
        identity = id(optimizer)
        if identity == self._leader:
            self._leader_steps += 1
        elif not self._becomes_leader(identity):
            return
        if self._backwards <= self._limit:  # otherwise they were steps, not the parts of one
            self._max_backwards = max(self._max_backwards, self._backwards)
        self._backwards = 0
        self._end_step()

    def on_scaler_update(self) -> None:
        """Count a step that GradScaler has left out because gradients are not finite."""
        if self._steps_count == self._steps_at_scaler_update:
            self._end_step()
        self._steps_at_scaler_update = self._steps_count

    def on_backward(self) -> None:
        """Count a backward pass as a step, if optimizers report none."""
        self._is_eager = True
        self._on_pass()

    def on_graph_replay(self) -> None:
        """Count the replay of a CUDA graph as a step, if neither optimizers nor backward passes report any."""
        if not self._is_eager:
            self._on_pass()
        self._is_eager = False

    def _on_pass(self) -> None:
        self._backwards += 1
        if self._backwards > self._limit:
            self._end_step()

    def on_data_wait(self) -> None:
        """Begin to wait for a DataLoader, whose dataset may itself wait for another one."""
        if get_ident() == self._thread:
            if self._depth == 0:
                self._waiting_since = monotonic()
            self._depth += 1

    def on_data(self, is_batch: bool) -> None:
        """End the wait for a DataLoader.

        Args:
            is_batch: Whether it has returned a batch, and not raised an exception.
        """
        if self._depth and get_ident() == self._thread:
            self._depth -= 1
            since = self._waiting_since
            if self._depth == 0 and since is not None:
                self._waiting_since = None
                self._data_seconds += monotonic() - since
                self._batches_count += is_batch

    def progress(self) -> dict[str, Any] | None:
        """The field ``training`` of the message ``statistics``; None before the first batch and the first step."""
        if not (self._steps_count or self._batches_count or self._depth):
            return None
        count = min(len(self.steps), _RECENT_STEPS)
        recent = [self.steps[index] for index in range(-count, 0)]
        return {
            "steps_count": self._steps_count,
            "batches_count": self._batches_count,
            "last_step_monotonic": self._ended_at,
            "step_seconds": sorted(step[1] for step in recent)[count // 2] if recent else None,
            "data_seconds": sum(step[2] for step in recent) / count if recent else None,
            "collection_seconds": sum(step[3] for step in recent) / count if recent else None,
            "waiting_for_data_since_monotonic": self._waiting_since,
        }

    @property
    def _limit(self) -> int:
        """After how many backward passes without a step of an optimizer they are steps themselves."""
        return max(_MIN_BACKWARDS, 4 * self._max_backwards)

    def _end_step(self) -> None:
        now = monotonic()
        thread = get_ident()
        if thread != self._thread:
            self._thread = thread
            self._data_seconds = 0.0
        collection_seconds = self.collections.seconds(thread)
        if self._ended_at is not None:
            self.steps.append((now, now - self._ended_at, self._data_seconds, collection_seconds))
        self._ended_at = now
        self._data_seconds = 0.0
        self._waiting_since = None  # an exception in the middle of a hook may have left it
        self._depth = 0
        self._steps_count += 1

    def _becomes_leader(self, identity: int) -> bool:
        """Count a step of an optimizer that is not the leading one; return whether it is the leading one now."""
        steps, leader_steps, streak = self._others.get(identity, (0, 0, 0))
        steps += 1
        streak = streak + 1 if leader_steps == self._leader_steps else 1
        if steps <= self._leader_steps and streak <= _LONG_STREAK:
            if len(self._others) >= _MAX_OPTIMIZERS:
                self._others.clear()
            self._others[identity] = (steps, self._leader_steps, streak)
            return False
        self._others.pop(identity, None)
        if self._leader:
            self._others[self._leader] = (self._leader_steps, steps, 0)
        self._leader, self._leader_steps = identity, steps
        return True


class DataTimer:
    """A context manager around the calls that wait for a DataLoader."""

    def __init__(self, training: Training) -> None:
        self._training = training

    def __enter__(self) -> None:
        self._training.on_data_wait()

    def __exit__(self, kind: object, *_: object) -> None:
        self._training.on_data(kind is None)


class BackwardCounter:
    """A context manager around the calls that run a backward pass; those of a pass within a pass do not count.

    Attributes:
        depth: How many of them run at the moment, one within the other.
    """

    def __init__(self, training: Training) -> None:
        self._training = training
        self.depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1
        if self.depth <= 0:
            self.depth = 0
            self._training.on_backward()


class GraphReplay:
    """A context manager around the call that replays a CUDA graph; replays within a backward pass do not count."""

    def __init__(self, training: Training, backwards: BackwardCounter) -> None:
        self._training = training
        self._backwards = backwards

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, *_: object) -> None:
        if not self._backwards.depth:
            self._training.on_graph_replay()


class ScalerUpdate:
    """A context manager around the calls that update the factor of a GradScaler, once after each step."""

    def __init__(self, training: Training) -> None:
        self._training = training

    def __enter__(self) -> None:
        self._training.on_scaler_update()

    def __exit__(self, *_: object) -> None:
        """Do nothing: the step has ended before the update."""


def main_thread() -> int:
    """The identifier of the main thread, as `sys._current_frames` has it."""
    threading: Any = sys.modules.get("threading")  # torch has imported it
    return get_ident() if threading is None else int(threading.main_thread().ident or 0)
