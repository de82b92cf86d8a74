"""What the command line makes of arguments, without a process for each."""

import pytest
from click.testing import CliRunner

from gpumon.cli.commands import gpumon
from gpumon.core.ascii_fallback import Symbols, block_replacement, symbols_for


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("xid", "79"), "GPU has fallen off the bus [xid-79]"),
        (("xid", "999"), "[xid-other]"),
        (("oom",), "CUDA out of memory [oom]"),
        (("CUDA error: device-side assert triggered",), "Device-side assert"),
    ],
)
def test_an_error_is_explained_by_its_name_or_its_text(arguments: tuple[str, ...], text: str) -> None:
    done = CliRunner().invoke(gpumon, ["explain", *arguments])
    assert (done.exit_code, text in done.output) == (0, True), done.output


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("status --json --csv", "exclude each other"),
        ("record x --duration 5x", "5x"),
        ("--interval 2h status --help", "not in the range 0.1<=x<=3600"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(line: str, text: str) -> None:
    done = CliRunner().invoke(gpumon, line.split())
    assert (done.exit_code, text in done.output) == (2, True), done.output


def test_every_choice_of_gpus_has_the_same_name() -> None:
    for command in ("status", "run", "pick", "wait", "results"):
        options = [option for parameter in gpumon.commands[command].params for option in parameter.opts]
        assert {"--gpu", "--device"} <= set(options), command


def test_a_terminal_gets_the_characters_that_it_has() -> None:
    assert symbols_for({"TERM": "xterm", "LANG": "en_US.UTF-8"}) is Symbols.UNICODE
    assert symbols_for({"TERM": "linux", "LANG": "en_US.UTF-8"}) is Symbols.BLOCKS
    assert symbols_for({"TERM": "linux", "LANG": "en_US.UTF-8", "LC_ALL": "de_DE.ISO-8859-1"}) is Symbols.ASCII
    assert symbols_for({"LANG": "C"}) is Symbols.UNICODE, "as Python has it"
    assert "".join(map(block_replacement, "⣿⠉⣀⠀▂▇▸─a")) == "█▀▄ ▄█>─a"
    assert "".join(map(block_replacement, "━━╸──")) == "===──", "a bar differs from its rest"
