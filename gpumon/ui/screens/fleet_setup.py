"""How a fleet is added: hosts that are typed here, or what the configuration file names."""

from collections.abc import Sequence
from pkgutil import get_data
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.widgets import Input, Static

from gpumon.core.problems import CommandError
from gpumon.operations.fleet.ssh import parse_hosts
from gpumon.session.view_state import ViewState
from gpumon.ui.messages import HostsAdded
from gpumon.ui.screens.base import ViewScreen
from gpumon.ui.widgets.footer import Footer


class FleetSetupScreen(ViewScreen[None]):
    """Asks for hosts.

    Args:
        hosts: The hosts that are read now.
    """

    PAGE: ClassVar[str] = "docs/fleet.md"
    SHOWS_FRAMES: ClassVar[bool] = False
    TAB: ClassVar[str] = "Fleet"
    AUTO_FOCUS: ClassVar[str] = "Input"
    DEFAULT_CSS = (
        "FleetSetupScreen { Static { padding: 1 1; } Input { margin: 0 1; max-width: 76; } #error { padding: 0 1; } }"
    )

    def __init__(self, hosts: Sequence[str] = ()) -> None:
        super().__init__()
        self._hosts = ",".join(hosts)

    def compose(self) -> ComposeResult:
        yield from self.compose_top("title")
        yield Static((get_data(__package__, "fleet_setup.txt") or b"").decode(), markup=False)
        field = Input(self._hosts, placeholder="box01,user@box02", compact=True)
        field.cursor_blink = False  # a cursor that blinks sends bytes while nothing changes
        yield field
        yield Static(id="error", markup=False)
        yield Footer()

    def show(self, _: ViewState) -> None:
        self.show_title("GPUs of many hosts")

    @on(Input.Submitted)
    def read(self) -> None:
        """Read the hosts that were typed."""
        text = self.query_one(Input).value.strip()
        try:
            hosts = parse_hosts(text or None, None)
        except CommandError as error:
            self.query_one("#error", Static).update(f"! {error.problem}")
            return
        if hosts:
            self.post_message(HostsAdded(tuple(hosts)))
