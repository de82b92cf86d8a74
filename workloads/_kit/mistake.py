"""A mistake made on purpose, as data: a short program and the one expression in it that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DEVICE = "DEVICE"
"""Placeholder in the code for ``cuda`` or ``cpu``."""


@dataclass(frozen=True)
class Mistake:
    """One mistake.

    Attributes:
        name: Id of the error in gpumon's error catalogue.
        what: The mistake, in one sentence.
        fix: The fix, in one sentence.
        code: The program with the mistake.
        wrong: The wrong expression in it; empty if the mistake is in the environment.
        fixed: The expression that replaces it.
        wording: Regular expression that the error message must match.
        answer: The last line that the fixed program prints.
        environment: Environment variables of both programs.
        wrong_environment: Environment variables that are the mistake.
        on_cpu: Whether the mistake can be made without a GPU.
        memory_bytes: Maximum device memory of its tensors and of library workspaces.
        kills: What the error destroys, in sentences, if it destroys the CUDA context; needs a confirmation then.
        modules: Modules that the fixed program needs in addition to torch.
    """

    name: str
    what: str
    fix: str
    code: str
    wording: str
    answer: str
    wrong: str = ""
    fixed: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    wrong_environment: Mapping[str, str] = field(default_factory=dict)
    on_cpu: bool = False
    memory_bytes: int = 64 << 20
    kills: str = ""
    modules: tuple[str, ...] = ()

    def wrong_code(self, device: str) -> str:
        """Returns the program with the mistake, for ``cuda`` or ``cpu``."""
        return self.code.replace(DEVICE, device)

    def fixed_code(self, device: str) -> str:
        """Returns the same program with the fix."""
        return (self.code.replace(self.wrong, self.fixed) if self.wrong else self.code).replace(DEVICE, device)
