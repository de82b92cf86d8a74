"""Jobs of Slurm on the screen of the fleet."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpumon.operations.fleet.queries import FleetList
from gpumon.session import fleet_registry
from tests.fleet.conftest import program
from tests.fleet.hosts import mixed_hosts
from tests.fleet.slurm_jobs import install
from tests.ui.fakes import screen_lines, screen_text
from tests.ui.test_fleet import canned

Install = Callable[[str, str], None]
__all__ = ["program"]


async def test_jobs_and_users_have_requested_and_used_gpus(program: Install, tmp_path: Path) -> None:
    hosts = mixed_hosts(8)
    calls = install(program, tmp_path, hosts)
    async with canned(hosts, (160, 50)) as (view, _):
        await view.text("Slurm: 2 jobs have 64 of 64 GPUs.")
        assert "ada" in view.row("node0003"), "Slurm knows the job of a host whose exporter does not"
        await view.pilot.press("v")
        await view.text("Alloc")
        await view.pilot.press("v", "v")
        await view.text("llama-70b-sft")
        assert view.screen.front is FleetList.JOBS
        heading = next(line for line in screen_lines(view.app) if " Req" in line)
        assert heading.split()[:5] == ["Job", "Name", "GPUs", "Req", "Used"]
        assert view.row("llama-70b-sft").lstrip(" ▸").split()[:5] == ["4700", "llama-70b-sft", "32", "32", "24"]
        await view.pilot.press("v")
        await view.text("bob")
        assert view.row("bob").split()[:4] == ["bob", "32", "32", "24"]
        await view.pilot.press("enter")
        await view.text("32 of 64")
        await view.pilot.press("escape")
        assert calls.read_text().count("--json") == 1, "once in 30 s, however often the screen is drawn"


async def test_a_slurm_that_fails_is_a_sentence_and_the_jobs_stay(
    program: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_registry, "_QUEUE_SECONDS", 0.5)
    monkeypatch.setattr(fleet_registry, "_QUEUE_PAUSE", 1.0)
    hosts = mixed_hosts(4)
    install(program, tmp_path, hosts)
    async with canned(hosts, (160, 50)) as (view, _):
        await view.text("Slurm: 1 job has 32 of 32 GPUs.")
        program("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
        await view.text("Unable to contact slurm controller")
        assert "Slurm: 1 job has 32 of 32 GPUs." in screen_text(view.app)


@pytest.mark.long
async def test_nothing_is_said_where_slurm_does_not_exist() -> None:
    async with canned(mixed_hosts(4), (160, 50)) as (view, _):
        await view.pilot.press("v", "v", "v")
        await view.text("4700")
        text = screen_text(view.app)
        assert "Slurm" not in text
        assert " Req" not in text
