"""Has a process empty its PyTorch cache: the question, the wait for its answer, and what it released."""

from enum import Enum
from math import inf

from textual.widgets import Button, Static

from gpumon.core.allocator import EmptyCacheResult
from gpumon.core.model import Device, Frame
from gpumon.operations.empty_cache import explain_emptied
from gpumon.operations.gpu_processes import Owner
from gpumon.present.process_questions import cache_question, failed_text, requested_text
from gpumon.probe.messages import RequestKind
from gpumon.session.view_state import ProbeRequest, ViewState
from gpumon.ui.messages import ProbeRequested
from gpumon.ui.screens.base import ViewScreen
from gpumon.ui.screens.confirm import ConfirmDialog


class Phase(Enum):
    """Progress of the request."""

    QUESTION = "question"
    REQUESTED = "requested"
    ANSWERED = "answered"
    """The process has answered; the driver's next value of the memory in use has not arrived yet."""
    DONE = "done"


class EmptyCacheDialog(ConfirmDialog[None], ViewScreen[None]):
    """Asks the user first, and does nothing before the answer.

    Args:
        owner: The process, with the statistics of its allocator for the GPU.
        device: The GPU.
    """

    def __init__(self, owner: Owner, device: Device) -> None:
        assert owner.statistics is not None
        assert owner.probe is not None
        command = (None if owner.process is None else owner.process.command) or ""
        super().__init__(cache_question(owner, owner.statistics, command), "Empty the cache")
        self.phase = Phase.QUESTION
        self._owner = owner
        self._probe = owner.probe
        self._statistics = owner.statistics
        self._key = device.key
        self._request_number = 0
        self._used_before: float | None = None
        self._text = ""

    def show(self, state: ViewState) -> None:
        """Follow the request; the driver's value of the memory in use counts from its first sample after the answer."""
        device = next((device for device in state.frame.devices if device.key == self._key), None)
        used, read_at = _used(state.frame, device)
        request = state.probes.requests.get(self._request_number)
        if self.phase is Phase.QUESTION:
            self._used_before = used
        elif request is not None and self.phase is Phase.REQUESTED:
            self._follow(request, state.probes.clock_monotonic)
        elif request is not None and self.phase is Phase.ANSWERED and read_at > request.answered_monotonic:
            self.phase = Phase.DONE
            self._write(self._outcome(request, used))

    def action_answer(self, confirmed: bool) -> None:
        if not confirmed:
            self.dismiss(None)
        elif self.phase is Phase.QUESTION:
            self.phase = Phase.REQUESTED
            self.query_one("#yes").display = False
            self.query_one("#no", Button).label = "Close"
            self.query_one("#no").focus()
            message = ProbeRequested(self._probe, RequestKind.EMPTY_CACHE)
            self._request_number = message.number
            self.post_message(message)

    def _follow(self, request: ProbeRequest, now: float) -> None:
        """Show the state of the request until its answer has arrived."""
        if request.refusal:
            self.phase = Phase.DONE
            self._write(f"{request.refusal}\n")
        elif request.answer is None:
            self._write(requested_text(self._owner, now - request.requested_monotonic))
        elif isinstance(request.answer.result, EmptyCacheResult):
            self.phase = Phase.ANSWERED
            self._write(self._outcome(request, None))
        else:
            self.phase = Phase.DONE
            self._write(failed_text(request.answer.problem))

    def _outcome(self, request: ProbeRequest, used_after: float | None) -> str:
        assert request.answer is not None
        emptied = request.answer.result
        assert isinstance(emptied, EmptyCacheResult)
        return "\n".join([*explain_emptied(emptied, self._statistics.ordinal, self._used_before, used_after), ""])

    def _write(self, text: str) -> None:
        if text != self._text:
            self._text = text
            self.query_one("#text", Static).update(text)


def _used(frame: Frame, device: Device | None) -> tuple[float | None, float]:
    """Bytes in use on a device, and the time of that sample in monotonic seconds; a stale value is not known."""
    if device is None or not frame.is_fresh(device) or device.is_stale("memory_used_bytes"):
        return None, -inf
    return device.get("memory_used_bytes"), frame.monotonic_seconds - (device.age_seconds or 0.0)
