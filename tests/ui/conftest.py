"""What every test of the screen stands on."""

import functools
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import pytest
from rich.console import RenderableType
from textual._compositor import Compositor
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet

from gpumon.session import frame_session
from gpumon.ui import app
from tests.ui.probing import FakeWatcher
from tests.ui.training import Training


@pytest.fixture(scope="session", autouse=True)
def stylesheets_parsed_once() -> Iterator[None]:
    """Keeps parsed stylesheets for the next app: a sixth of the time that its start takes."""
    parsed: dict[object, list[RuleSet]] = {}
    parse = Stylesheet._parse_rules

    def parse_once(self: Stylesheet, css: str, *more: Any, **options: Any) -> list[RuleSet]:  # noqa: ANN401
        key = css, repr((more, options)), frozenset(self._variables.items())
        if key not in parsed:
            parsed[key] = parse(self, css, *more, **options)
        return parsed[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", parse_once)
        patch.setattr(app, "exclude_modules_from_collection", lambda: None)  # visits all tests
        yield


@pytest.fixture(autouse=True, scope="module")
def opened() -> Iterator[WeakSet[Compositor]]:
    """Renders a screen of a pilot when it opens and when a test reads it: no terminal shows what is in between.

    One that is not among those that have been opened is rendered at its next change; a dialog, which needs the screens
    behind it, at every one.
    """
    opened: WeakSet[Compositor] = WeakSet()
    render = Compositor.render_update

    def render_update(self: Compositor, full: bool = False, **options: Any) -> RenderableType | None:  # noqa: ANN401
        if full or self not in opened or options.get("screen_stack"):
            opened.add(self)
            return render(self, full, **options)
        self._dirty_regions.clear()
        return None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Compositor, "render_update", render_update)
        yield opened


@pytest.fixture(autouse=True)
def watcher(monkeypatch: pytest.MonkeyPatch) -> FakeWatcher:
    """Replaces the watcher that connects to the probes of this host: it has the messages that a test puts in."""
    fake = FakeWatcher()
    monkeypatch.setattr(app, "open_watcher", lambda: fake)
    return fake


@pytest.fixture
def training(watcher: FakeWatcher) -> Training:
    return Training(watcher)


@pytest.fixture(autouse=True)
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stops the clock of silence: however slow the test is, a fake stream is silent only if the test says so."""
    monkeypatch.setattr(frame_session, "time", SimpleNamespace(monotonic=functools.partial(float, time.monotonic())))
