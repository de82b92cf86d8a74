"""What the README and the changelog promise is there: two commands to copy, pictures, every command."""

import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from gpumon import cli

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
COMMANDS = [line for line in README.splitlines() if line.startswith("python3 -m venv")]
PICTURES = re.findall(r"!\[.+?\]\((.+?)\)", README)


def test_two_lines_to_copy_run_it_and_test_it() -> None:
    run_it, test_it = COMMANDS
    assert re.fullmatch(r"python3 -m venv \.venv && \.venv/bin/pip install \. && \.venv/bin/gpumon", run_it)
    assert test_it.startswith("python3 -m venv .venv-test && ")
    assert test_it.endswith("-m pytest")
    assert not run_it.endswith("\\")


def test_ci_runs_the_very_command_of_the_readme() -> None:
    script = (ROOT / ".ci/run").read_text()
    extraction = re.search(r"^test_command=\$\((sed .*)\)$", script, re.MULTILINE)
    assert extraction is not None
    found = subprocess.run(["sh", "-c", extraction[1]], cwd=ROOT, check=True, capture_output=True, text=True)
    assert found.stdout == COMMANDS[1] + "\n"
    assert 'bash -c "$test_command"' in script


def test_there_are_pictures() -> None:
    assert len(PICTURES) >= 2


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_a_screen_that_textual_has_saved(name: str) -> None:
    picture = ET.parse(ROOT / name).getroot()
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    assert "rich-terminal" in picture.get("class", "")
    text = "".join(picture.itertext())
    assert "H200" in text
    assert "Traceback" not in text


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    assert [target for target in targets if not (ROOT / target).exists()] == []


@pytest.mark.parametrize("command", ["gpumon", *(f"gpumon {name}" for name in cli.gpumon.commands)])
def test_the_changelog_names_every_command(command: str) -> None:
    assert re.search(rf"`{command}[` ]", (ROOT / "CHANGELOG.md").read_text())
