"""A mistake that a workload makes on purpose, as data: a file of a few lines, and the one place in it that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DEVICE = "DEVICE"
"""Stands in the code for ``cuda`` or ``cpu``."""


@dataclass(frozen=True)
class Mistake:
    """One mistake.

    Attributes:
        name: Its name in gpumon's catalogue of errors.
        what: What is wrong, in one sentence.
        mending: What is done about it, in one sentence.
        code: The file with the mistake.
        wrong: The place in it that is wrong; empty if it is the environment.
        mended: What stands there instead.
        wording: Regular expression that the error's text must match.
        answer: The last line that the mended code prints.
        environment: Variables of both.
        wrong_environment: Variables that are the mistake.
        on_cpu: Whether it can be made without a GPU.
        memory_bytes: Device memory that its tensors and the workspaces of libraries take at most.
        kills: What it ends, in a sentence, if that is its CUDA context; it asks first then.
        modules: Modules that the mended code needs beside torch.
    """

    name: str
    what: str
    mending: str
    code: str
    wording: str
    answer: str
    wrong: str = ""
    mended: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    wrong_environment: Mapping[str, str] = field(default_factory=dict)
    on_cpu: bool = False
    memory_bytes: int = 64 << 20
    kills: str = ""
    modules: tuple[str, ...] = ()

    def wrong_code(self, device: str) -> str:
        """The file with the mistake, for ``cuda`` or ``cpu``."""
        return self.code.replace(DEVICE, device)

    def mended_code(self, device: str) -> str:
        """The same file without it."""
        return (self.code.replace(self.wrong, self.mended) if self.wrong else self.code).replace(DEVICE, device)
