"""The form of one workload: where it runs, with which parameters and which Python."""

from collections.abc import Sequence
from typing import ClassVar, Final

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Button, Footer, Input, Static

from gpumon.core.model import Device
from gpumon.core.problems import Problem
from gpumon.jobs.catalogue import WorkloadInfo
from gpumon.jobs.interpreter import Interpreter
from gpumon.jobs.parameters import Value
from gpumon.ui.jobs import CPU, BoardRun, Place
from gpumon.ui.scene import Scene
from gpumon.ui.screens.drawn import DrawnScreen
from gpumon.ui.view.around import title_line
from gpumon.ui.view.places import cpu_offer, gpu_offers
from gpumon.ui.widgets.fields import Tick
from gpumon.ui.widgets.parameter_field import ParameterField
from gpumon.ui.widgets.text_line import TextLines
from gpumon.ui.workshop import Workshop, look_for_interpreter

_PYTHON_HELP: Final = (
    "The Python of your training environment: a path, or a program on PATH. It needs torch, and nothing of gpumon."
)
_CPU_HELP: Final = "Only the CPU: GPUs are offered while gpumon shows this machine live and its driver answers."
_PLACE_HELP: Final = "space ticks a device. Several GPUs may be ticked: each gets a run of its own."


class WorkloadForm(DrawnScreen[list[BoardRun]]):
    """Asks for all that a start needs; its result is what was started.

    Args:
        workshop: What starts it.
        workload: The workload.
        devices: GPUs of this machine.
    """

    AUTO_FOCUS: ClassVar[str] = "Tick"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Back", id="form.back", tooltip="Back without starting anything"),
        Binding("f5,ctrl+s", "start", "Start", id="form.start", tooltip="Start the workload", priority=True),
        Binding("down", "app.focus_next", "Next", show=False, id="form.next", tooltip="The next field"),
        Binding("up", "app.focus_previous", "Previous", show=False, id="form.previous", tooltip="The field before"),
        Binding("ctrl+c", "app.quit", "Quit", show=False, id="form.quit", tooltip="Leave gpumon", priority=True),
    ]

    def __init__(self, workshop: Workshop, workload: WorkloadInfo, devices: Sequence[Device]) -> None:
        super().__init__()
        self._workshop = workshop
        self._workload = workload
        self._offers = [*gpu_offers(workshop.board, devices), cpu_offer(workshop.board, workload)]
        first = next((place for place, offer in enumerate(self._offers) if offer.is_free), None)
        self._ticked = set() if first is None else {first}
        self._is_checking = False

    def compose(self) -> ComposeResult:
        yield TextLines(id="title")
        with VerticalScroll(id="fields", can_focus=False):
            yield Static("Where it runs", classes="section", markup=False)
            for place, offer in enumerate(self._offers):
                tick = Tick(offer.label, id=f"place-{place}")
                tick.disabled = offer.place is None
                tick.set_ticked(place in self._ticked)
                yield tick
            yield Static("", id="place-error", classes="error", markup=False)
            yield Static("Parameters", classes="section", markup=False)
            for parameter in self._workload.parameters:
                yield ParameterField(parameter, self._device)
            yield from self._compose_python()
        yield Static("", id="note", markup=False)
        yield Footer()

    def _compose_python(self) -> ComposeResult:
        yield Static("Interpreter", classes="section", markup=False)
        found = self._workshop.interpreter
        with Vertical(id="python-field"), Horizontal(classes="field"):
            yield Static("python", classes="label", markup=False)
            yield Input(str(found.path) if isinstance(found, Interpreter) else "", id="python", compact=True)
        yield Static("", id="python-said", markup=False)
        yield Static("", id="python-error", classes="error", markup=False)
        yield Button("Start (F5)", id="start", variant="primary", compact=True)

    def on_mount(self) -> None:
        """Begins at the device that is ticked, and says from the start what stands in the way of a start."""
        for number in self._ticked:
            self.query_one(f"#place-{number}", Tick).focus()
        self.check()

    def show(self, scene: Scene) -> None:
        """Draws what changes while the form is open: free memory, and devices that become free."""
        title = f"{self._workload.name}  {self._workload.purpose}"
        types = isinstance(self.focused, Input)
        self.query_one("#title", TextLines).show([title_line(title, "", scene, self.size.width, key=not types)])
        offers = {offer.key: offer for offer in gpu_offers(self._workshop.board, scene.frame.devices)}
        offers[CPU.key] = cpu_offer(self._workshop.board, self._workload)
        for number, before in enumerate(self._offers):
            if before.key in offers and (scene.is_this_machine or before.key == CPU.key):
                self._offers[number] = offers[before.key]
                self.query_one(f"#place-{number}", Tick).show(offers[before.key].label)
        self.check()

    @on(Tick.Toggled)
    def choose_place(self, toggled: Tick.Toggled) -> None:
        """GPUs go together; the CPU, whose defaults are others, stands alone."""
        number = int(str(toggled.tick.id).removeprefix("place-"))
        if toggled.ticked:
            is_cpu = self._offers[number].key == CPU.key
            self._ticked = {each for each in self._ticked if (self._offers[each].key == CPU.key) is is_cpu} | {number}
        else:
            self._ticked.discard(number)
        for each in range(len(self._offers)):
            self.query_one(f"#place-{each}", Tick).set_ticked(each in self._ticked)
        for field in self.query(ParameterField):
            field.move_to(self._device)
        self.check()

    @on(ParameterField.Changed)
    def check(self) -> None:
        """Lets it be started only while nothing is wrong."""
        refusals = [self._offers[each].refusal for each in sorted(self._ticked) if self._offers[each].refusal]
        wrong = refusals[0] if refusals else "" if self._ticked else "Choose where it runs."
        self._say("place-error", f"! {wrong}" if wrong else "")
        found = self._workshop.interpreter
        if self._is_checking:
            self._say("python-said", "Looking whether it has torch ...")
        elif isinstance(found, Problem) and not self._python:
            self._say("python-said", f"! {found.reason} Name one here.")
        elif isinstance(found, Interpreter):
            self._say("python-said", f"Found by way of {found.found_in}.")
        start = self.query_one("#start", Button)
        if start.disabled is not (not self._can_start):
            start.disabled = not self._can_start
            self.refresh_bindings()

    @on(Input.Changed, "#python")
    def forget_error(self) -> None:
        """What was wrong is wrong of another text."""
        self._say("python-error", "")
        self.check()

    @on(Input.Submitted)
    def go_on(self) -> None:
        """Goes to the next field."""
        self.focus_next()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Shows what is to be known about the field."""
        field = next((each for each in event.widget.ancestors_with_self if isinstance(each, ParameterField)), None)
        if field is not None:
            self._say("note", field.note)
        else:
            notes = {"python": _PYTHON_HELP, "start": "Starts it. It asks first on a GPU where others work."}
            places = _PLACE_HELP if len(self._offers) > 1 else _CPU_HELP
            self._say("note", notes.get(event.widget.id or "", places))

    @on(Button.Pressed, "#start")
    def action_start(self) -> None:
        if not self._can_start:
            return
        found, asked = self._workshop.interpreter, self._python
        if isinstance(found, Interpreter) and asked in {"", str(found.path)}:
            self._start_with(found)
            return
        self._is_checking = True
        self.check()
        self._workshop.in_background(lambda: look_for_interpreter(asked), self._take_interpreter)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Greys the key for starting while something is wrong."""
        if action == "start":
            return True if self.is_mounted and self._can_start else None
        return super().check_action(action, parameters)

    def _take_interpreter(self, found: Interpreter | Problem) -> None:
        """The interpreter was looked at; the form may have been closed meanwhile."""
        if not self.is_attached or not self._is_checking:
            return
        self._is_checking = False
        if isinstance(found, Problem):
            self._say("python-said", "")
            self._say("python-error", f"! {found}")
            self.refresh_bindings()
            return
        self._workshop.interpreter = found
        self.check()
        if self._can_start:
            self._start_with(found)

    def _start_with(self, python: Interpreter) -> None:
        values: dict[str, Value] = {
            field.parameter.name: field.parameter.parse(field.text) for field in self.query(ParameterField)
        }
        board = self._workshop.board
        self.dismiss([board.start(self._workload, place, values, python) for place in self._places])

    @property
    def _places(self) -> list[Place]:
        chosen = (self._offers[each].place for each in sorted(self._ticked))
        return [place for place in chosen if place is not None]

    @property
    def _device(self) -> str:
        """Whose defaults are shown."""
        return CPU.device if any(self._offers[each].key == CPU.key for each in self._ticked) else "cuda:0"

    @property
    def _python(self) -> str:
        return self.query_one("#python", Input).value.strip()

    @property
    def _can_start(self) -> bool:
        is_free = bool(self._ticked) and all(self._offers[each].is_free for each in self._ticked)
        return is_free and not self._is_checking and not any(field.error for field in self.query(ParameterField))

    def _say(self, name: str, text: str) -> None:
        static = self.query_one(f"#{name}", Static)
        if static.content != text:
            static.update(text)
            static.set_class(bool(text), "-said")
