"""The form of one workload: its devices, its parameters, and the Python that runs it."""

from typing import ClassVar, Final

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Button, Input, Static

from gpumon.core.problems import Problem
from gpumon.operations.device_selection import CPU, RunTarget
from gpumon.present.device_choices import cpu_choice, gpu_choices
from gpumon.session.view_state import ViewState
from gpumon.session.workload_controller import search_interpreter
from gpumon.ui.keymap import Bindings, key
from gpumon.ui.messages import StartRequest, StartRequested
from gpumon.ui.screens.base import ViewScreen
from gpumon.ui.widgets.fields import ParameterField, Tick
from gpumon.ui.widgets.footer import Footer
from gpumon.workload_runs.catalogue import WorkloadInfo
from gpumon.workload_runs.interpreter import Interpreter
from gpumon.workload_runs.parameters import Value

_PYTHON_HELP: Final = (
    "The Python of your training environment: a path, or a program on PATH. It needs torch; gpumon need not be "
    "installed there."
)
_CPU_HELP: Final = "Only the CPU: GPUs are available while gpumon shows this host live and its driver responds."
_DEVICE_HELP: Final = "enter selects a device. If you select several GPUs, each gets a separate run."
_START_HELP: Final = "Starts the workload. gpumon asks first if the GPU is in use by other processes."


class WorkloadForm(ViewScreen[int]):
    """Asks for everything that a start needs; the result is the number of runs that it has requested."""

    PAGE: ClassVar[str] = "docs/workloads.md"
    SHOWS_FRAMES: ClassVar[bool] = False
    TAB: ClassVar[str] = "Workloads"
    AUTO_FOCUS: ClassVar[str] = "Tick"
    BINDINGS: ClassVar[Bindings] = [
        key("form.back", "Back", "Back without starting anything", "dismiss(None)"),
        key("form.start", "Start", "Start the workload", priority=True),
        key("form.down", "Next", "Next field", "app.focus_next", keys="down", show=False),
        key("form.up", "Previous", "Previous field", "app.focus_previous", keys="up", show=False),
    ]

    def __init__(self, workload: WorkloadInfo, state: ViewState) -> None:
        super().__init__()
        self._workload = workload
        self._interpreter = state.workloads.interpreter
        devices, runs = state.frame.devices if state.is_this_host else (), state.workloads.runs
        self._choices = [*gpu_choices(devices, runs), cpu_choice(workload, runs)]
        first = next((number for number, choice in enumerate(self._choices) if choice.is_free), None)
        self._selected = set() if first is None else {first}
        self._is_checking = False

    def compose(self) -> ComposeResult:
        yield from self.compose_top("title")
        with VerticalScroll(id="fields", can_focus=False):
            yield Static("Device", classes="section", markup=False)
            for number, choice in enumerate(self._choices):
                tick = Tick(choice.label, id=f"device-{number}")
                tick.disabled = choice.target is None
                tick.set_ticked(number in self._selected)
                yield tick
            yield Static("", id="device-error", classes="error", markup=False)
            yield Static("Parameters", classes="section", markup=False)
            for parameter in self._workload.parameters:
                yield ParameterField(parameter, self._device)
            yield from self._compose_python()
        yield Static("", id="note", markup=False)
        yield Footer()

    def _compose_python(self) -> ComposeResult:
        yield Static("Interpreter", classes="section", markup=False)
        python = str(self._interpreter.path) if isinstance(self._interpreter, Interpreter) else ""
        with Vertical(id="python-field"), Horizontal(classes="field"):
            yield Static("python", classes="label", markup=False)
            yield Input(python, id="python", compact=True)
        yield Static("", id="python-info", markup=False)
        yield Static("", id="python-error", classes="error", markup=False)
        yield Button("Start (F5)", id="start", variant="primary", compact=True)

    def on_mount(self) -> None:
        """Focus the selected device, and show from the beginning what prevents a start."""
        super().on_mount()
        for number in self._selected:
            self.query_one(f"#device-{number}", Tick).focus()
        self.check()

    def show(self, state: ViewState) -> None:
        """Draw what changes while the form is open: free memory, and devices that become free."""
        self.show_title(f"{self._workload.name}  {self._workload.purpose}")
        self._interpreter = state.workloads.interpreter
        runs = state.workloads.runs
        choices = {choice.key: choice for choice in gpu_choices(state.frame.devices, runs)}
        choices[CPU.key] = cpu_choice(self._workload, runs)
        for number, before in enumerate(self._choices):
            if before.key in choices and (state.is_this_host or before.key == CPU.key):
                self._choices[number] = choices[before.key]
                self.query_one(f"#device-{number}", Tick).show(choices[before.key].label)
        self.check()

    @on(Tick.Toggled)
    def toggle_device(self, toggled: Tick.Toggled) -> None:
        """Select a device: several GPUs together, or the CPU, whose defaults differ, alone."""
        number = int(str(toggled.tick.id).removeprefix("device-"))
        if toggled.ticked:
            is_cpu = self._choices[number].key == CPU.key
            same_kind = {other for other in self._selected if (self._choices[other].key == CPU.key) is is_cpu}
            self._selected = same_kind | {number}
        else:
            self._selected.discard(number)
        for other in range(len(self._choices)):
            self.query_one(f"#device-{other}", Tick).set_ticked(other in self._selected)
        for field in self.query(ParameterField):
            field.set_device(self._device)
        self.check()

    @on(ParameterField.TextChanged)
    def check(self) -> None:
        """Show what prevents a start, and permit a start only if nothing does."""
        refusals = [self._choices[number].refusal for number in sorted(self._selected)]
        error = next(filter(None, refusals), "" if self._selected else "Select a device.")
        self._write("device-error", f"! {error}" if error else "")
        interpreter = self._interpreter
        if self._is_checking:
            self._write("python-info", "Checking whether it has torch ...")
        elif isinstance(interpreter, Problem) and not self._python:
            self._write("python-info", f"! {interpreter.reason} Enter one here.")
        elif isinstance(interpreter, Interpreter):
            self._write("python-info", f"Source: {interpreter.found_in}.")
        start = self.query_one("#start", Button)
        if start.disabled is self._can_start:
            start.disabled = not self._can_start
            self.refresh_bindings()

    @on(Input.Changed, "#python")
    def clear_error(self) -> None:
        """Remove the error, which was about another text."""
        self._write("python-error", "")
        self.check()

    @on(Input.Submitted)
    def focus_next_field(self) -> None:
        """Go to the next field."""
        self.focus_next()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Show the help of the field."""
        widget = event.widget
        field = next((node for node in widget.ancestors_with_self if isinstance(node, ParameterField)), None)
        if field is not None:
            self._write("note", field.note)
        else:
            notes = {"python": _PYTHON_HELP, "start": _START_HELP}
            device_help = _DEVICE_HELP if len(self._choices) > 1 else _CPU_HELP
            self._write("note", notes.get(widget.id or "", device_help))

    @on(Button.Pressed, "#start")
    def action_start(self) -> None:
        if not self._can_start:
            return
        interpreter, requested = self._interpreter, self._python
        if isinstance(interpreter, Interpreter) and requested in {"", str(interpreter.path)}:
            self._start_with(interpreter)
            return
        self._is_checking = True
        self.check()
        self.in_background(lambda: search_interpreter(requested), self._use_interpreter)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Dim the key that starts the workload while something prevents a start."""
        if action == "start":
            return True if self.is_mounted and self._can_start else None
        return super().check_action(action, parameters)

    def _use_interpreter(self, interpreter: Interpreter | Problem) -> None:
        """Start with the interpreter that was checked, unless something prevents a start by now."""
        if not self.is_attached or not self._is_checking:
            return
        self._is_checking = False
        if isinstance(interpreter, Problem):
            self._write("python-info", "")
            self._write("python-error", f"! {interpreter}")
            self.refresh_bindings()
            return
        self.check()
        if self._can_start:
            self._start_with(interpreter)

    def _start_with(self, python: Interpreter) -> None:
        values: dict[str, Value] = {
            field.parameter.name: field.parameter.parse(field.text) for field in self.query(ParameterField)
        }
        targets = self._targets
        # The app receives the message directly, because this screen closes before a message could bubble.
        self.app.post_message(StartRequested(StartRequest(self._workload, targets, values, python)))
        self.dismiss(len(targets))

    @property
    def _targets(self) -> list[RunTarget]:
        choices = (self._choices[number] for number in sorted(self._selected))
        return [choice.target for choice in choices if choice.target is not None]

    @property
    def _device(self) -> str:
        """The device whose defaults are shown."""
        is_cpu = any(self._choices[number].key == CPU.key for number in self._selected)
        return CPU.device if is_cpu else "cuda:0"

    @property
    def _python(self) -> str:
        return self.query_one("#python", Input).value.strip()

    @property
    def _can_start(self) -> bool:
        is_free = bool(self._selected) and all(self._choices[number].is_free for number in self._selected)
        return is_free and not self._is_checking and not any(field.error for field in self.query(ParameterField))

    def _write(self, name: str, text: str) -> None:
        static = self.query_one(f"#{name}", Static)
        if static.content != text:
            static.update(text)
            static.set_class(bool(text), "-shown")
