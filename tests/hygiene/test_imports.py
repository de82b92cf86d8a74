"""What each process of gpumon must not import; a module that is imported costs every start."""

import subprocess
import sys

import pytest

from gpumon.core.frames import encode
from tests.frames import machine

PRINT_MODULES = "import sys, {module}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"


@pytest.mark.parametrize(
    ("module", "banned"),
    [
        ("gpumon.cli.entry", {"textual", "rich", "torch", "pynvml"}),
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


FIRST_PICTURE = """
    cli: appearance commands config config_file entry group notify_config options output quick screen
    core: ascii_fallback collector_contract device_use episodes frames groups heap inbox json_fields json_text limits
        metrics model notebook ownership problem_table problems procfs state_file store text text_table throttle_reasons
        timeline units xids
    health: alerts alerts.errors alerts.history alerts.links alerts.memory
        alerts.model alerts.rule alerts.rules alerts.thermal alerts.tracking
    operations: gpu_processes program_name signals
    present: device_owner device_table first_run header heat_map limits metric_style overview_chart
        overview_plan overview_table overview_totals paint paint.area paint.bar paint.columns paint.line paint.sparkline
        paint.table palette process_table table_filter table_state time_axis top_line
    session: alert_notifier app_session background costs frame_session job_registry memory_history oom_notices
        pace probe_registry process_registry recorder run_registry signal_controller table_memory view_state
        wait_registry workload_controller
    streams: base child live
    ui: app base_app drawing keymap messages navigation notifications partial_update process_actions run_controller
        screens screens.base screens.overview terminal textual_fixes themes widgets widgets.filter_bar
        widgets.footer widgets.gpu_chart widgets.heat_map_view widgets.line_table widgets.table_view widgets.text_lines
"""
"""The modules of gpumon, by room, that are imported when the overview shows its first values.

Each costs time before them. What few sessions need, and what belongs to another screen, is imported late.
"""
FIRST_PICTURE_LIBRARIES = {"click", "platformdirs", "rich", "textual", "typing_extensions"}
LATE_LIBRARIES = {"email", "gzip", "importlib.metadata", "secrets", "urllib.request", "zipfile"}
SHOW_FIRST_PICTURE = """
import asyncio, os, sys
import gpumon.cli.entry
from gpumon.core.frames import decode
from gpumon.streams.live import LiveStream
from gpumon.ui.app import GpumonApp
from gpumon.ui.screens.overview import OverviewScreen

def show(screen, state):
    show_state(screen, state)
    if state.frame.devices:
        os.write(1, ' '.join(sys.modules).encode())  # Textual does not flush what is printed
        os._exit(0)

async def main():
    async with GpumonApp(stream).run_test() as pilot:
        await pilot.pause(60)

show_state, OverviewScreen.show = OverviewScreen.show, show
stream = LiveStream(1.0)
stream.inbox.put(decode(sys.stdin.read()))
asyncio.run(main())
"""


def test_first_picture() -> None:
    result = subprocess.run(
        [sys.executable, "-c", SHOW_FIRST_PICTURE], input=encode(machine()), check=True, capture_output=True, text=True
    )
    modules = set(result.stdout.split())
    expected = {"gpumon"}
    for line in FIRST_PICTURE.replace("\n        ", " ").split("\n    "):
        room, _, names = line.strip().partition(":")
        expected |= {f"gpumon.{room}", *(f"gpumon.{room}.{name}" for name in names.split())} if room else set()
    assert {name for name in modules if name.partition(".")[0] == "gpumon"} == expected
    libraries = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names
    begun = subprocess.check_output([sys.executable, "-c", "import sys; print(*sys.modules)"], text=True).split()
    libraries -= {"gpumon", "__main__"} | ({name.partition(".")[0] for name in begun} - FIRST_PICTURE_LIBRARIES)
    assert {name for name in libraries if not name.startswith("_")} == FIRST_PICTURE_LIBRARIES
    assert not (modules - set(begun)) & LATE_LIBRARIES
