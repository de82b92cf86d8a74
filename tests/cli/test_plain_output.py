"""Limited outputs: an encoding without gpumon's glyphs, no color, and sixteen colors."""

import io
import json
import re
import subprocess
import tokenize
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from rich.cells import cell_len

from gpumon.core.ascii_fallback import UNKNOWN, ascii_replacement, enable_ascii_fallback
from gpumon.streams.replay import DEMO
from tests.cli.running import GPUMON, PATIENCE_SECONDS
from tests.nvml_mock import NvmlMock
from tests.terminal import Terminal

ROOT = Path(__file__).resolve().parents[2]
LATIN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "latin-1"}
ASCII = {**LATIN, "PYTHONIOENCODING": ""}
NEVER_DRAWN = {"gpumon/core/text.py", "gpumon/core/ascii_fallback.py"}
"""Files whose characters are patterns."""
IN_UTF_8 = re.compile(b"[\xc2-\xf4][\x80-\xbf]")


def glyphs_of(file: Path) -> set[str]:
    if file.read_bytes().isascii():
        return set()
    with file.open("rb") as source:
        drawn = [token.string for token in tokenize.tokenize(source.readline) if token.type == tokenize.STRING]
    return {character for text in drawn for character in text if not character.isascii()}


def written(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[int, list[bytes]]:
    """Exit code and lines of a command, in bytes."""
    done = subprocess.run((GPUMON, *argv), check=False, env=environment, capture_output=True, timeout=PATIENCE_SECONDS)
    return done.returncode, (done.stdout + done.stderr).splitlines()


def test_every_glyph_of_gpumon_has_an_ascii_replacement() -> None:
    files = [path for path in (ROOT / "gpumon").rglob("*.py") if str(path.relative_to(ROOT)) not in NEVER_DRAWN]
    drawn = {glyph for file in files for glyph in glyphs_of(file)}
    assert "█" in drawn
    assert not {glyph for glyph in drawn if ascii_replacement(glyph) == UNKNOWN}


def test_every_braille_pattern_has_an_ascii_replacement() -> None:
    stand_ins = [ascii_replacement(chr(code)) for code in range(0x2800, 0x2900)]
    assert all(text.isascii() and len(text) == 1 and text != UNKNOWN for text in stand_ins)
    assert [ascii_replacement(dots) for dots in "⠀⠉⠒⠤⣀⡇"] == [" ", "'", "-", "-", ".", "|"]


@pytest.mark.parametrize(
    ("character", "stand_ins"), [("é", "?"), ("漢", "??"), ("한", "??"), ("\u0301", ""), ("🦙", "??")]
)
def test_replacements_keep_the_width(character: str, stand_ins: str) -> None:
    assert ascii_replacement(character) == stand_ins
    assert cell_len(character) == len(stand_ins)


@pytest.mark.parametrize(("encoding", "written"), [("ascii", b"56 'C -"), ("latin-1", b"56 \xb0C -")])
def test_only_unencodable_characters_are_replaced(encoding: str, written: bytes) -> None:
    held = io.BytesIO()
    stream = io.TextIOWrapper(held, encoding=encoding)
    enable_ascii_fallback(stream)
    stream.write("56 °C –")
    stream.flush()
    assert held.getvalue() == written


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "argv",
    [
        ("status",),
        ("status", "--json"),
        ("workloads",),
        ("export", str(DEMO), "--metrics", "power_watts"),
        ("run", "nothing-like-this"),
        ("--help",),
    ],
)
@pytest.mark.parametrize("locale", [LATIN, ASCII])
def test_commands_write_in_the_encoding_of_the_locale(
    nvml_mock: NvmlMock, argv: Sequence[str], locale: dict[str, str]
) -> None:
    environment = nvml_mock.environment(gpus=2)
    code, lines = written(argv, environment)
    plain_code, plain_lines = written(argv, {**environment, **locale})
    assert plain_code == code
    if "--json" in argv:  # its lists are as long as the driver answered in time
        assert json.loads(b"".join(plain_lines)).keys() == json.loads(b"".join(lines)).keys()
    else:  # the status has a line more if the driver did not answer in time
        assert abs(len(plain_lines) - len(lines)) <= (argv == ("status",))
    assert not any(b"Traceback" in line for line in plain_lines)
    assert locale is not ASCII or all(line.isascii() for line in plain_lines)
    assert not any(IN_UTF_8.search(line) for line in plain_lines)


@pytest.mark.long
@pytest.mark.parametrize("colors", [{"NO_COLOR": "1"}, {"TERM": "xterm-16color", "COLORTERM": ""}])
def test_a_state_is_readable_without_color(nvml_mock: NvmlMock, colors: dict[str, str]) -> None:
    environment = {**nvml_mock.environment(gpus=2, fault="lost:1"), **colors}
    with Terminal((GPUMON, "--interval", "0.2"), env=environment) as terminal:
        shown = terminal.wait_for(r"(?s)! GPU 1 is lost.*\n *1 .*LOST")
        assert re.search(r"▸ *0 ", shown), "the cursor"
        if "NO_COLOR" not in colors:
            assert not re.search(rb"\x1b\[[\d;]*[34]8;[25];", terminal.raw), "the terminal has only sixteen colors"
