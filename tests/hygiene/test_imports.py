"""What each process of gpumon must not import; a module that is imported costs every start."""

import subprocess
import sys

import pytest

PRINT_MODULES = "import sys, {module}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"


@pytest.mark.parametrize(
    ("module", "banned"),
    [
        ("gpumon.cli", {"textual", "rich", "torch", "pynvml"}),
        ("gpumon.collect.loop", {"textual", "rich", "click", "torch"}),
        ("gpumon.api", {"textual", "rich", "click", "torch", "pynvml"}),
        ("gpumon.streams.live", {"textual", "rich", "click", "torch", "pynvml"}),
        ("gpumon.ui.app", {"pynvml", "torch"}),
    ],
)
def test_imports(module: str, banned: set[str]) -> None:
    program = PRINT_MODULES.format(module=module)
    imported = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert not banned & set(imported.stdout.split())
