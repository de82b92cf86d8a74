"""The moving picture of the selftest: one SVG that contains every scene once, and that animates by itself."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from gpumon.ui.selftest import screens as steps
from gpumon.ui.selftest import selftest, tour
from gpumon.ui.selftest.movie import FRAME_SECONDS, Scene, movie
from gpumon.ui.selftest.tour import Stop
from tests import builders
from tests.frames import machine
from tests.ui.fakes import FakeLive, FakeStream, app_on

SVG = "{http://www.w3.org/2000/svg}"


async def scenes(*keys: str) -> list[Scene]:
    """A scene for each key."""
    stream = FakeLive()
    app = app_on(stream)
    pictures = []
    async with app.run_test(size=(80, 24)) as pilot:
        stream.put(machine(2))
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
            pictures.append(Scene(f"{key} <&>", app.export_screenshot()))
    return pictures


def frames_of(picture: str) -> list[ET.Element]:
    return [group for group in ET.fromstring(picture) if group.get("class", "").startswith("frame")]


async def test_every_scene_is_shown_in_its_turn() -> None:
    shots = await scenes("1", "6", "C")
    frames = frames_of(movie(shots))
    assert [frame.get("style") for frame in frames] == [
        f"animation-delay: {number * FRAME_SECONDS:g}s" for number in range(3)
    ]
    assert [frame.get("class") for frame in frames] == ["frame first", "frame", "frame"], "shown without animations"
    assert ["".join(frame.itertext()).split("\n")[0][:5] for frame in frames] == ["1 <&>", "6 <&>", "C <&>"]


async def test_a_scene_has_the_text_and_colors_of_its_screenshot() -> None:
    shots = await scenes("1", "6")
    for shot, frame in zip(shots, frames_of(movie(shots)), strict=True):
        assert styled_texts(ET.fromstring(shot.svg)) == styled_texts(frame, movie(shots))


def styled_texts(element: ET.Element, document: str = "") -> list[tuple[str, str, str]]:
    """The text in the window with its place and style."""
    styles = dict(re.findall(r"\.(\S+) \{ (fill: .*?) \}", document or ET.tostring(element, encoding="unicode")))
    texts = [text for text in element.iter(f"{SVG}text") if not str(text.get("class")).endswith("title")]
    assert texts
    return [(str(text.get("x")), styles[str(text.get("class"))], str(text.text)) for text in texts]


@pytest.mark.long
async def test_what_scenes_have_in_common_is_contained_once() -> None:
    shots = await scenes("1", "6", "C", "1", "6")
    picture = movie(shots)
    names = re.findall(r'id="([^"]+)"', picture)
    assert len(names) == len(set(names))
    assert set(re.findall(r"url\(#([^)]+)\)", picture)) <= set(names)
    assert picture.count("@font-face") == 2
    assert len(picture) < 0.7 * sum(len(shot.svg) for shot in shots)
    assert not re.search(r"url\([^#]", picture), "a picture in a page cannot load fonts"


@pytest.fixture
def _short_selftest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "FIRST_FRAMES_SECONDS", 0.1)
    monkeypatch.setattr("gpumon.ui.selftest.STEPS", ())
    monkeypatch.setattr(tour, "_SECONDS_PER_STOP", 0.05)


async def record(stops: tuple[Stop, ...], path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The result of the step that records the stops."""
    monkeypatch.setattr(tour, "STOPS", stops)
    stream: FakeStream = FakeLive()
    stream.put(builders.frame())
    checks = await selftest(stream, (80, 24), "dark", None, movie=path)
    return f"{checks[-1].id} {checks[-1].status.value} {checks[-1].detail}"


@pytest.mark.usefixtures("_short_selftest")
async def test_a_tour_fails_that_shows_a_scene_twice_or_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tour.svg"
    stops = (Stop("1", ("1",)), Stop("again", ("1",)))
    assert await record(stops, path, monkeypatch) == "movie fail a key changed nothing"
    monkeypatch.setattr(tour, "MAX_BYTES", 10_000)
    assert "are more than 10000" in await record(stops[:1], path, monkeypatch)
    assert not path.exists()
