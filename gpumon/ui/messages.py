"""Facts that travel up to the app."""

from textual.message import Message


class FramesWaiting(Message):
    """The inbox holds something. A newer bell replaces one that still rings: the handler takes everything anyway."""

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, FramesWaiting)


class JobsHaveNews(Message):
    """A workload has told something, or what was looked for in the background is found."""

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, JobsHaveNews)


class ProbesHaveNews(Message):
    """A probe has come, told something or gone, or has answered."""

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, ProbesHaveNews)


class SceneWanted(Message):
    """A screen has come to the top or has another size; what it shows is of another moment or shape."""

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, SceneWanted)
