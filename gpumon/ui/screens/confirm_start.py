"""The question before a workload starts whose GPU is in use by other processes, or that asks for confirmation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.core.units import MISSING, bytes_text, counted
from gpumon.present.workload_text import resources_text
from gpumon.ui.screens.confirm import ConfirmDialog

if TYPE_CHECKING:
    from gpumon.operations.workload import StartQuestion


class ConfirmStartDialog(ConfirmDialog[bool]):
    """Says why gpumon asks, which processes use the GPU, and what the workload will use.

    Args:
        question: What the user must confirm.
    """

    def __init__(self, question: StartQuestion) -> None:
        super().__init__(question_text(question), "Start anyway")
        self.run = question.run

    def action_answer(self, confirmed: bool) -> None:
        self.dismiss(confirmed)


def question_text(question: StartQuestion) -> str:
    """What the dialog says."""
    state, name = question.run.state, question.run.request.workload.name
    lines = [f"{name} asks for confirmation. {state.confirmation_reason}", ""] if state.confirmation_reason else []
    lines += _other_process_lines(question) if question.others else []
    lines.append(f"{name} will use at most: {resources_text(state.plan)}.")
    slower = "The other processes will run slower meanwhile. " if question.others else ""
    return "\n".join([*lines, f"{slower}Start anyway?", ""])


def _other_process_lines(question: StartQuestion) -> list[str]:
    processes = counted(len(question.others), "other process")
    lines = [f"{question.run.target.label} is in use by {processes}:", ""]
    for device, process, memory_bytes in question.others:
        held = bytes_text(memory_bytes)
        if process is None:
            lines.append(f"  GPU {device.label}  a process that is not visible from here holds {held}")
            continue
        command = process.command or "exited, or in another PID namespace"
        lines.append(f"  GPU {device.label}  {process.user or MISSING}  PID {process.pid}  holds {held}")
        lines.append(f"    {command}")
    return [*lines, ""]
