"""Hosts through ssh on the screen of the fleet: values, a host that refuses, and a host that opens live."""

import sys
from pathlib import Path

import pytest

from gpumon.core.frames import encode
from gpumon.fleet.settings import HostsSettings
from gpumon.operations.fleet.queries import FleetList
from gpumon.ui.app import GpumonApp
from gpumon.ui.screens.device import DeviceScreen
from gpumon.ui.screens.fleet import FleetScreen
from gpumon.ui.screens.overview import OverviewScreen
from gpumon.ui.widgets.line_table import LineTable
from tests.frames import machine
from tests.ui.fakes import FakeLive, screen_lines, screen_text, until

_SSH = """#!{python} -IS
import os, sys, time
if sys.argv[-2] == "refuses":
    sys.stderr.write("ann@refuses: Permission denied (publickey).\\n")
    sys.exit(255)
while True:
    os.write(1, open({frame!r}, "rb").read())
    time.sleep(0.3)
"""


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program in place of ssh, whose hosts have three GPUs, except the host that refuses."""
    frame = tmp_path / "frame"
    frame.write_text(encode(machine(3)) + "\n")
    program = tmp_path / "ssh"
    program.write_text(_SSH.format(python=sys.executable, frame=str(frame)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


@pytest.mark.sampled(1)
@pytest.mark.usefixtures("ssh")
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_hosts_lists_and_a_host_live(size: tuple[int, int]) -> None:
    stream = FakeLive()
    app = GpumonApp(stream, fleet=HostsSettings(("box01", "box02", "refuses")), opens_fleet=True)

    try:
        async with app.run_test(size=size) as pilot:
            stream.put(machine(2))
            await until(pilot, lambda: "6 GPUs on 2 hosts" in screen_text(app))
            assert "Without Prometheus there is no PromQL" in screen_text(app)
            await until(
                pilot, lambda: any("refuses" in line and "! ssh failed: ann" in line for line in screen_lines(app))
            )
            assert isinstance(app.screen, FleetScreen)
            assert app.screen.text_to_copy == ""
            sentences = {
                FleetList.FINDINGS: "! silent ",
                FleetList.JOBS: "Slurm on this host has no job with one of these GPUs",
                FleetList.USAGE: "The usage needs the history of a Prometheus",
            }
            for kind in FleetList:
                assert app.screen.front is kind
                await until(pilot, lambda kind=kind: sentences.get(kind, "") in screen_text(app))  # type: ignore[misc]
                await pilot.press("v")
            await pilot.press("end", "enter")
            await until(pilot, lambda: "refuses reports no GPU now. ssh failed: ann@refuses" in _notices(app))
            await pilot.press("home", "enter")
            await until(pilot, lambda: isinstance(app.screen, OverviewScreen) and "box01" in screen_text(app))
            await until(pilot, lambda: len(app.screen.query_one("#devices", LineTable).rows) == 3)
            frame = app.session.store.frame
            await until(pilot, lambda: app.session.store.frame is not frame)
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(app.screen, DeviceScreen))
            await pilot.press("escape", "escape")
            await until(pilot, lambda: isinstance(app.screen, FleetScreen))
            await until(pilot, lambda: not app.session.shows_host)
    finally:
        app.session.close()


def _notices(app: GpumonApp) -> str:
    return " ".join(notice.message for notice in app._notifications)


@pytest.mark.usefixtures("ssh")
async def test_hosts_are_added_from_the_screen() -> None:
    stream = FakeLive()
    app = GpumonApp(stream)
    try:
        async with app.run_test(size=(120, 40)) as pilot:
            stream.put(machine(2))
            await pilot.press("9")
            assert "gpumon fleet --hosts" in screen_text(app), "how to add hosts"
            await pilot.press(*"b/x", "enter")
            await until(pilot, lambda: "! " in screen_text(app))
            await pilot.press(*["backspace"] * 3, *"box01,box02", "enter")
            await until(pilot, lambda: "6 GPUs on 2 hosts" in screen_text(app))
            assert " 9 Fleet" in screen_lines(app)[0]
    finally:
        app.session.close()
