"""Bindings, and everything that is made of them: footer, help, command palette, and the key table of the README."""

import re
from collections import Counter
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
from textual._compositor import Compositor
from textual.command import CommandPalette, Hit
from textual.pilot import Pilot
from textual.widgets import Input

from gpumon.present.top_line import TABS
from gpumon.ui.commands import GpumonCommands
from gpumon.ui.keymap import KEY_MEANINGS, MEANINGS, all_bindings, footer_rank, meaning_of
from gpumon.ui.screens.device import DeviceScreen
from gpumon.ui.screens.explain import ExplainScreen
from gpumon.ui.screens.help import HelpScreen
from gpumon.ui.screens.overview import OverviewScreen
from gpumon.ui.screens.page import PageScreen
from gpumon.ui.widgets.footer import MAX_KEYS
from tests import builders
from tests.frames import machine
from tests.ui.fakes import FakeLive, FakeRecording, app_on, screen_lines, screen_text, seen, until

# Bindings


def test_every_binding_has_an_id_and_a_tooltip() -> None:
    bindings = list(all_bindings())
    assert len(bindings) > 80
    without = [(owner.__name__, binding.key) for owner, binding in bindings if not binding.id or not binding.tooltip]
    assert without == []


def test_an_id_is_used_once() -> None:
    ids = Counter(binding.id for _, binding in all_bindings())
    assert [name for name, count in ids.items() if count > 1] == []


def test_tooltips_are_one_line_without_a_full_stop() -> None:
    assert [binding.id for _, binding in all_bindings() if re.search(r"\.$|\n", binding.tooltip)] == []
    assert [binding.id for _, binding in all_bindings() if len(binding.tooltip) > 75] == []


def test_a_key_has_one_meaning_in_the_entire_program() -> None:
    bound = {(key, meaning_of(binding.id or "")) for _, binding in all_bindings() for key in binding.key.split(",")}
    assert sorted(item for item in bound if KEY_MEANINGS.get(item[0]) != item[1]) == []
    keys = [key for meaning in MEANINGS for key in meaning.keys]
    assert len(keys) == len(set(keys)), "the table itself"


def test_each_tab_has_its_digit() -> None:
    assert [KEY_MEANINGS[tab.key] for tab in TABS] == [tab.name.lower() for tab in TABS]


# Help


async def test_help_comes_and_goes() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(80, 60)) as pilot:
        stream.put(machine())
        for opening, closing in [
            ("question_mark", "escape"),
            ("f1", "f1"),
            ("question_mark", "question_mark"),
            ("f1", "q"),
        ]:
            await pilot.press(opening)
            assert isinstance(app.screen, HelpScreen)
            assert "Quit; asks while" in screen_text(app)
            await pilot.press(closing)
            assert isinstance(app.screen, OverviewScreen)
        assert not app._exit


async def test_help_has_every_key_of_the_screen_below() -> None:
    stream = FakeRecording()
    app = app_on(stream)
    async with app.run_test(size=(80, 100)) as pilot:
        stream.put(machine())
        await pilot.pause()
        for keys, page in (([], "Overview"), (["enter"], "One GPU over time")):
            await pilot.press(*keys)
            tooltips = {active.binding.tooltip for active in app.screen.active_bindings.values() if active.binding.id}
            await pilot.press("question_mark")
            text = " ".join(screen_text(app).split())
            assert [tooltip for tooltip in tooltips if tooltip not in text] == []
            assert f"The page '{page}'" in text
            assert isinstance(app.screen, HelpScreen)
            assert max(map(len, app.screen.text.splitlines())) <= 80 - 4 - 1, "padding and scroll bar"
            await pilot.press("escape")


# Footer


@pytest.mark.sampled(1)
@pytest.mark.parametrize("size", [(80, 24), (100, 30), (60, 15), (61, 15), (160, 50)])
async def test_the_footer_has_complete_keys_only(size: tuple[int, int]) -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=size) as pilot:
        stream.put(machine())
        await pilot.pause()
        for keys in ([], ["enter"], ["6"]):
            await pilot.press(*keys)
            await pilot.pause()
            labels = [(active.binding, active.binding.description) for active in app.screen.active_bindings.values()]
            entries = {f"{app.get_key_display(binding)} {label}" for binding, label in labels} | {"^p Palette"}
            rest = re.sub(" +", " ", screen_lines(app)[-1]).strip()
            shown = []
            while rest:
                entry = max(
                    (entry for entry in (*entries, "│") if f"{rest} ".startswith(f"{entry} ")), key=len, default=""
                )
                assert entry, rest
                shown.append(entry)
                rest = rest[len(entry) :].strip()
            front, _, everywhere = " | ".join(shown).partition("│")
            assert max(front.count("|"), everywhere.count("|")) <= MAX_KEYS
            assert "? Help" in screen_lines(app)[-1]
            assert size[0] < 80 or "q Quit" in screen_lines(app)[-1] or keys


async def test_the_footer_keeps_the_keys_of_the_lowest_rank() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(160, 24)) as pilot:
        stream.put(machine())
        await pilot.press("enter")
        ranks = {
            app.get_key_display(active.binding): footer_rank(active.binding)
            for active in app.screen.active_bindings.values()
        }
        shown = []
        for width in (160, 100, 80, 60):
            await pilot.resize_terminal(width, 24)
            await pilot.pause()
            front, _, everywhere = screen_lines(app)[-1].partition("│")
            for part in (front, everywhere):
                keys = [key for key in ranks if f" {key} " in part]
                places = {key: part.index(f" {key} ") for key in keys}
                assert sorted(keys, key=places.__getitem__) == sorted(keys, key=lambda key: (ranks[key], places[key]))
            shown.append({key for key in ranks if f" {key} " in front + everywhere})
            left_out = [ranks[key] for key in shown[0] - shown[-1]]
            assert min(left_out, default=99) >= max(ranks[key] for key in shown[-1])
        assert len(shown[-1]) < len(shown[0])


async def test_a_click_on_a_key_presses_it() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 30)) as pilot:
        stream.put(machine())
        await pilot.pause()
        await pilot.click("Footer", offset=(screen_lines(app)[-1].index("? Help") + 2, 0))
        await pilot.pause()
        assert isinstance(app.screen, HelpScreen)


# Command palette


async def run_command(pilot: Pilot[Any], name: str) -> None:
    """Enters a name into the command palette and runs the first command that it finds."""
    await pilot.press("ctrl+p")
    palette = pilot.app.screen
    palette.query_one(Input).value = name
    await pilot.pause()
    await pilot.app.workers.wait_for_complete([worker for worker in pilot.app.workers if worker.node is palette])
    await pilot.pause()
    await pilot.press("enter")
    await until(pilot, lambda: not isinstance(pilot.app.screen, CommandPalette))
    await pilot.pause(0.1)


@pytest.mark.long
async def test_the_palette_has_each_action_that_applies_once() -> None:
    stream = FakeRecording()
    app = app_on(stream)
    async with app.run_test() as pilot:
        stream.put(machine())
        await pilot.pause()
        titles = [command.title for command in GpumonCommands(app.screen).actions()]
        assert {"Quit", "Help", "Pause", "Theme", "Demo", "Save", "Copy", "Forward"} <= set(titles)
        assert len(titles) == len(set(titles)), titles
        assert not {"Maximize", "Minimize", "Keys"} & set(titles), "nothing of Textual's own"
        await run_command(pilot, "Pause")
        assert stream.paused
        await pilot.press("enter")
        await pilot.pause()
        titles = [command.title for command in GpumonCommands(app.screen).actions()]
        assert {"Workloads", "Zoom in", "Choose", "Back", "Next GPU"} <= set(titles)
        await run_command(pilot, "Zoom in")
        await pilot.press("escape")
        assert isinstance(app.screen, OverviewScreen)


async def test_the_palette_finds_gpus_charts_errors_themes_and_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("textual.highlight.guess_language")  # it loads every language there is, which takes 18 MiB
    stream = FakeRecording()
    app = app_on(stream)
    async with app.run_test(size=(120, 40)) as pilot:
        stream.put(machine())
        await pilot.pause()
        for query, title, kind in (
            ("gpu 3", "GPU 3  H200", DeviceScreen),
            ("temperature of gpu 2", "GPU 2", DeviceScreen),
            ("xid 79", "fallen off the bus", ExplainScreen),
            ("docs check", "Check: may this node take a job?", PageScreen),
            ("theme light", "", OverviewScreen),
        ):
            commands = GpumonCommands(app.screen)
            await commands.startup()
            hits = [hit async for hit in commands.search(query) if isinstance(hit, Hit)]
            max(hits, key=lambda hit: hit.score).command()
            await until(pilot, lambda kind=kind: isinstance(app.screen, kind), query)  # type: ignore[misc]
            await seen(pilot, title)
            await pilot.press("escape")
        await until(pilot, lambda: app.theme == "light")
        await run_command(pilot, "xid 79")
        await seen(pilot, "fallen off the bus")
        await pilot.press("ctrl+p", *"zzz")
        await until(pilot, lambda: "No matches found" in app.export_screenshot().replace("&#160;", " "))


# Screenshot and redrawing


@pytest.mark.sampled(1)
@pytest.mark.parametrize("has_downloads", [True, False])
async def test_a_screenshot_is_saved_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_downloads: bool
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DOWNLOAD_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "Downloads" if has_downloads else tmp_path / "state" / "gpumon"
    if has_downloads:
        folder.mkdir()
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(160, 40), notifications=True) as pilot:
        stream.put(builders.frame())
        await run_command(pilot, "Save")
        await until(pilot, lambda: bool(app._notifications))
        (file,) = folder.glob("gpumon-*.svg")
        text = file.with_suffix(".txt")
        assert [notification.message for notification in app._notifications] == [f"Saved {file} and {text.name}"]
        assert "train.py" in file.read_text()
        assert "train.py" in text.read_text()
        assert "Palette" not in text.read_text().splitlines()[0], "it has closed"


async def test_ctrl_l_draws_every_line_again(monkeypatch: pytest.MonkeyPatch, opened: WeakSet[Compositor]) -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(80, 24)) as pilot:
        stream.put(machine())
        await pilot.pause()
        opened.clear()
        updates: list[Any] = []
        monkeypatch.setattr(app, "_display", lambda _, update: updates.append(update))
        await pilot.pause()
        assert not any(updates), "nothing has changed"
        await pilot.press("ctrl+l")
        await pilot.pause()
        text = "".join(update.render_segments(app.console) for update in updates if update is not None)
        assert [word for word in ("H200", "train.py", "Owner", "Quit") if word not in text] == []
