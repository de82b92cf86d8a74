"""A page of the documentation."""

from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Markdown
from textual.widgets.markdown import MarkdownFence

from gpumon.present.pages import page_text, page_titles
from gpumon.ui.keymap import Bindings, key
from gpumon.ui.screens.base import BaseScreen
from gpumon.ui.widgets.footer import Footer


class _Block(MarkdownFence):
    @classmethod
    def highlight(cls, code: str, language: str, ansi: bool = False, dark: bool = False) -> Content:
        """Text where a block names no language: to guess one loads all 250 languages, which take 18 MiB."""
        return super().highlight(code, language or "text", ansi, dark)


class _Page(Markdown):
    BLOCKS = Markdown.BLOCKS | {"fence": _Block, "code_block": _Block}


class PageScreen(BaseScreen[None]):
    """Shows a page, whose links to other pages open those.

    Args:
        page: Its file, such as ``memory.md``.
    """

    DEFAULT_CSS = "PageScreen { Markdown { background: $background; } VerticalScroll { scrollbar-size-vertical: 1; } }"
    PAGE: ClassVar[str] = "docs/index.md"
    AUTO_FOCUS: ClassVar[str] = "VerticalScroll"
    BINDINGS: ClassVar[Bindings] = [key("page.back", "Back", "Back to the previous screen", "dismiss")]

    def __init__(self, page: str) -> None:
        super().__init__()
        self._page = page

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield _Page(page_text(self._page), open_links=False)
        yield Footer()

    @property
    def text_to_copy(self) -> str:
        return page_text(self._page)

    @on(Markdown.LinkClicked)
    def follow(self, clicked: Markdown.LinkClicked) -> None:
        """Open another page; the address of anything else is copied."""
        name = Path(clicked.href.partition("#")[0]).name
        if name in page_titles():
            self.app.push_screen(PageScreen(name))
        else:
            self.app.copy_to_clipboard(clicked.href)
            self.notify(f"Copied: {clicked.href}", markup=False)
