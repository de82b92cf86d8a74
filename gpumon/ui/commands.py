"""The command palette: the keys that apply, GPUs, processes, charts, workloads, themes, errors, Xids and pages."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import islice
from typing import Any, Final, NamedTuple

from textual.binding import ActiveBinding
from textual.command import DiscoveryHit, Hit, Hits, Provider

from gpumon.core.metrics import METRICS
from gpumon.core.model import Frame, short_product_name
from gpumon.core.units import bytes_text
from gpumon.operations.program_name import program_name
from gpumon.present.pages import page_titles
from gpumon.ui.keymap import TAB_BINDINGS, footer_rank, key_text, palette_title

_MAX_HITS: Final = 12
"""Of one kind."""
_CLOSE_SECONDS: Final = 0.1
"""A command runs when the palette has closed."""


class PaletteCommand(NamedTuple):
    """A line of the palette.

    Attributes:
        title: What is searched.
        help: What it does.
        run: Does it.
    """

    title: str
    help: str
    run: Callable[[], object]


class GpumonCommands(Provider):
    """Finds commands whose titles have every word of the query."""

    _app: Any
    """The `GpumonApp`, whose module imports this one."""

    async def startup(self) -> None:
        """Search for workloads, and read the titles of all errors, unless that is done."""
        self._app = self.app
        if self._app.session.workloads.catalogue is None and not self._app.session.is_read_only:
            self._app.session.workloads.refresh()

    async def discover(self) -> Hits:
        """What the keys do: those of the screen by their place in the footer, the screens, then the others."""
        for command in self.actions():
            yield DiscoveryHit(command.title, self._later(command), help=command.help)

    async def search(self, query: str) -> Hits:
        """Every kind of command, the keys of the screen first."""
        words = query.lower().split()
        errors = await asyncio.to_thread(_error_titles)
        kinds = (self.actions(), self._frame_commands(words), self._workloads(), self._themes(), self._pages())
        matcher = self.matcher(query)
        for rank, kind in enumerate((*kinds, self._errors(errors))):
            matching = (command for command in kind if all(word in command.title.lower() for word in words))
            for command in islice(matching, _MAX_HITS):
                score = _score(command.title.lower(), query.lower().strip()) - rank / 1000
                yield Hit(score, matcher.highlight(command.title), self._later(command), help=command.help)

    def actions(self) -> Iterator[PaletteCommand]:
        """What the keys of the screen below the palette and of the app do."""
        titles = set()
        tabs = {binding.id for binding in TAB_BINDINGS}

        def place(active: ActiveBinding) -> tuple[int, int]:
            group = 0 if active.node is not self.app else 1 if active.binding.id in tabs else 2
            return group, footer_rank(active.binding)

        for node, binding, enabled, _ in sorted(self.screen.active_bindings.values(), key=place):
            title = palette_title(binding)
            if title and enabled and title not in titles and binding.id:
                titles.add(title)
                help_text = f"{key_text(binding.key)}: {binding.tooltip}"
                yield PaletteCommand(title, help_text, partial(self.app.run_action, binding.action, node))

    def _later(self, command: PaletteCommand) -> Callable[[], object]:
        return partial(self.app.set_timer, _CLOSE_SECONDS, command.run)

    def _frame_commands(self, words: Iterable[str]) -> Iterator[PaletteCommand]:
        """GPUs, processes, and charts of the GPUs that the query names, or else of the selected one."""
        frame: Frame | None = self._app.session.store.frame
        navigation = self._app.navigation
        for device in () if frame is None else frame.devices:
            open_gpu = partial(navigation.open_device, device.key)
            yield PaletteCommand(f"GPU {device.label} {short_product_name(device.name)}", "Over time", open_gpu)
            for process in device.processes or ():
                title = f"PID {process.pid} {process.user or ''} {process.command or ''}"
                help_text = (
                    f"GPU {device.label}, {bytes_text(process.memory_bytes)}, {program_name(process.command or '')}"
                )
                yield PaletteCommand(title, help_text, partial(navigation.open_process, device.key, process.pid))
            if device.label in words or device.key == navigation.selected_key:
                for metric in METRICS.values():
                    title = f"Chart {metric.label[:1].lower()}{metric.label[1:]} of GPU {device.label}"
                    chart = partial(navigation.open_device, device.key, metric.id)
                    yield PaletteCommand(title, metric.help, chart)

    def _workloads(self) -> Iterator[PaletteCommand]:
        catalogue = self._app.session.workloads.catalogue
        for workload in () if catalogue is None or self._app.session.is_read_only else catalogue.workloads:
            run = partial(self._app.navigation.open_workload, workload)
            yield PaletteCommand(f"Run {workload.name}", workload.purpose, run)

    def _themes(self) -> Iterator[PaletteCommand]:
        for name in self._app.theme_names:
            yield PaletteCommand(f"Theme {name}", "Colors of the screen", partial(setattr, self.app, "theme", name))

    def _pages(self) -> Iterator[PaletteCommand]:
        for name, title in page_titles().items():
            open_page = partial(self._app.navigation.open_page, name)
            yield PaletteCommand(f"Docs: {title}", "A page of the documentation", open_page)

    def _errors(self, titles: Iterable[tuple[str, str]]) -> Iterator[PaletteCommand]:
        for error_id, title in titles:
            explain = partial(self._app.navigation.explain_error, error_id)
            yield PaletteCommand(f"{title} [{error_id}]", "What the error means, and how to fix it", explain)


@cache
def _error_titles() -> tuple[tuple[str, str], ...]:
    from gpumon.errors.load import ERRORS  # late: reading all entries takes a third of a second

    return tuple((error.id, error.title) for error in ERRORS.values())


def _score(title: str, query: str) -> float:
    """How well a title fits: all of it, its beginning, the beginning of a word, or a part."""
    if title == query:
        return 1.0
    return 0.9 if title.startswith(query) else 0.8 if f" {query}" in title else 0.7
