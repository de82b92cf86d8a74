"""Streams without threads or clocks for the app under test: a test puts every frame in by hand."""

from textual.geometry import Region
from textual.widget import Widget

from gpumon.core.frames import decode, encode
from gpumon.core.model import Device, DeviceState, Frame
from gpumon.core.problems import Problem, ProblemCode
from gpumon.streams.base import FrameInbox, Position
from gpumon.ui.app import GpumonApp
from tests import builders

NO_DRIVER = Problem(ProblemCode.LIBRARY_NOT_FOUND, "The NVIDIA driver is not installed.", "Install it.")
HOSTILE = "[/] [bold red]x[/bold] \x1b]0;owned\x07\x1b[2J\u202egnp.exe\x00\nnext line\x9b31m"
"""Markup that crashes, markup that colours, and what would act on a terminal."""


class FakeStream:
    """A stream that does nothing by itself."""

    def __init__(self, title: str = "live") -> None:
        self.title = title
        self.inbox = FrameInbox()
        self.problem: Problem | None = None
        self.started = 0
        self.closed = 0

    def start(self) -> None:
        self.started += 1

    def close(self) -> None:
        self.closed += 1

    def put(self, *frames: Frame) -> None:
        """Lets frames arrive as they do from outside: through the codec, which makes text safe."""
        for each in frames:
            self.inbox.put(decode(encode(each)))


class FakeLive(FakeStream):
    """A stream with an interval."""

    def __init__(self, title: str = "live") -> None:
        super().__init__(title)
        self.interval = 1.0
        self.intervals: list[float] = []

    def set_interval(self, seconds: float) -> None:
        self.interval = seconds
        self.intervals.append(seconds)


class FakeRecording(FakeStream):
    """A stream that can be moved in time."""

    def __init__(self, title: str = "demo.jsonl") -> None:
        super().__init__(title)
        self.paused = False
        self.speed = 1.0
        self.seconds = 65.0
        self.ended = False

    @property
    def position(self) -> Position:
        return Position(self.seconds, 300.0, self.speed, self.paused, self.ended)

    def set_paused(self, paused: bool) -> None:
        self.paused = paused

    def set_speed(self, speed: float) -> None:
        self.speed = speed

    def seek(self, seconds: float) -> None:
        self.seconds = seconds


def machine(gpus: int = 8, **changes: object) -> Frame:
    """A machine whose GPUs differ a little, so that a mixed-up row shows."""
    devices = tuple(
        builders.device(index, readings={"utilization_gpu_percent": float((index * 13) % 101)}) for index in range(gpus)
    )
    return builders.frame(**{"devices": devices, **changes})


def troubled() -> Frame:
    """Eight GPUs of which one is lost, one silent, one too hot and one held by nobody visible."""
    devices = list(machine().devices)
    lost = Problem(ProblemCode.GPU_LOST, "The GPU has fallen off the bus.")
    devices[1] = builders.device(
        1, state=DeviceState.LOST, age_seconds=None, readings=_nothing(), processes=None, problems={"state": lost}
    )
    devices[2] = builders.device(2, state=DeviceState.UNRESPONSIVE, age_seconds=12.0)
    devices[3] = builders.device(
        3, throttle_reasons=("hw_thermal_slowdown",), readings={"temperature_celsius": 91.0, "pcie_width": 8}
    )
    devices[4] = builders.device(4, readings={"memory_unattributed_bytes": 5 << 30})
    return builders.frame(devices=tuple(devices))


def hostile() -> Frame:
    """A machine on which every text comes from an enemy."""
    problem = Problem(ProblemCode.UNKNOWN, HOSTILE, HOSTILE)
    process = builders.process(4000, user=HOSTILE, command=HOSTILE, problems={"memory_bytes": problem})
    device: Device = builders.device(
        0,
        uuid=HOSTILE,
        pci_bus_id=HOSTILE,
        name=HOSTILE,
        architecture=HOSTILE,
        throttle_reasons=(HOSTILE,),
        processes=(process,),
        readings={"power_watts": None},
        problems={"power_watts": problem, "uuid": problem, "state": problem},
    )
    lost = builders.device(1, state=DeviceState.LOST, problems={"state": problem})
    host = builders.frame().host
    return builders.frame(
        devices=(device, lost),
        host=type(host)(HOSTILE, host.cpu_count, host.cpu_percent, host.load),
        driver_version=HOSTILE,
        cuda_driver_version=HOSTILE,
        problems={"left_behind": problem},
    )


def app_on(stream: FakeStream, theme: str = "dark") -> GpumonApp:
    """The app on a stream that the command line has started."""
    stream.start()
    return GpumonApp(stream, theme=theme)


def screen_lines(app: GpumonApp) -> list[str]:
    """What the screen on top shows, without colours."""
    return [strip.text for strip in app.screen._compositor.render_strips()]


def screen_text(app: GpumonApp) -> str:
    """The screen on top as one text."""
    return "\n".join(screen_lines(app))


class Refreshes:
    """Counts what a widget asks to be drawn again.

    Args:
        widget: The widget to spy on.
    """

    def __init__(self, widget: Widget) -> None:
        self.regions: list[Region] = []
        """Parts; an empty one stands for all of it."""
        original = widget.refresh

        def refresh(*regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Widget:
            self.regions += regions or [Region()]
            return original(*regions, repaint=repaint, layout=layout, recompose=recompose)

        widget.refresh = refresh  # type: ignore[method-assign]

    @property
    def rows(self) -> list[int]:
        """Rows of the parts, in their order."""
        return [region.y for region in self.regions]


def _nothing() -> dict[str, None]:
    return dict.fromkeys(builders.READINGS)
