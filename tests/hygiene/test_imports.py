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
        ("gpumon.api", {"textual", "rich", "click", "plotext", "torch", "pynvml"}),
        ("gpumon.streams.live", {"textual", "rich", "click", "torch", "pynvml"}),
        ("gpumon.ui.app", {"pynvml", "torch"}),
    ],
)
def test_imports(module: str, banned: set[str]) -> None:
    program = PRINT_MODULES.format(module=module)
    imported = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert not banned & set(imported.stdout.split())


def test_the_api_imports_what_a_function_needs_when_it_is_called() -> None:
    program = "import sys, gpumon.api; print(*sorted(name for name in sys.modules if name.startswith('gpumon')))"
    imported = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert imported.stdout.split() == ["gpumon", "gpumon.api"]
