"""What the README and the changelog promise is there: two commands to copy, pictures, keys, every command."""

import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from gpumon.cli import commands
from gpumon.ui.keymap import KEY_MEANINGS, MEANINGS, all_bindings, key_text, meaning_of
from gpumon.ui.selftest.tour import MAX_BYTES, STOPS

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
COMMANDS = [line for line in README.splitlines() if line.startswith("python3 -m venv")]
PICTURES = re.findall(r"!\[.+?\]\((.+?)\)", README)
MOVIE = "docs/tour.svg"


def test_two_lines_to_copy_run_it_and_test_it() -> None:
    run_it, test_it = COMMANDS
    assert "\nuvx --from . gpumon\npipx install . && gpumon\n" in README
    assert re.fullmatch(r"python3 -m venv \.venv && \.venv/bin/pip install \. && \.venv/bin/gpumon", run_it)
    assert test_it.startswith("python3 -m venv .venv-test && ")
    assert test_it.endswith("-m pytest")
    assert not run_it.endswith("\\")


def test_ci_runs_the_very_command_of_the_readme() -> None:
    script = (ROOT / ".ci/run").read_text()
    extraction = re.search(r"^test_command=\$\((sed .*)\)$", script, re.MULTILINE)
    assert extraction is not None
    command = subprocess.run(["sh", "-c", extraction[1]], cwd=ROOT, check=True, capture_output=True, text=True)
    assert command.stdout == COMMANDS[1] + "\n"
    assert 'bash -c "$test_command"' in script


def test_there_are_a_moving_picture_and_five_others() -> None:
    assert len(PICTURES) == 6
    assert PICTURES[0] == MOVIE


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_a_screen_that_textual_has_saved(name: str) -> None:
    picture = ET.parse(ROOT / name).getroot()
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    assert "rich-terminal" in picture.get("class", "")
    assert "H200" in "".join(picture.itertext()) or name in {"docs/explain.svg", PICTURE_OF_A_HANG}, "the demo"


PICTURE_OF_A_HANG = "docs/job.svg"
"""The demo has no ranks; a job with gloo has."""


def test_one_command_makes_every_picture() -> None:
    (command,) = re.findall(r"^gpumon selftest .*--movie.*$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    options = dict(re.findall(r"--(\w+) ([^-]\S*)", command))
    assert options["screens"] == "docs"
    made = {f"docs/{name}.svg" for name in options["only"].split(",")} | {options["movie"]}
    present = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.svg")}
    assert made == present - {PICTURE_OF_A_HANG} == set(PICTURES) - {PICTURE_OF_A_HANG}
    assert "tests.hangs.pictures" in (ROOT / "CONTRIBUTING.md").read_text()


def test_the_moving_picture_moves_and_is_quick_to_load() -> None:
    picture = (ROOT / MOVIE).read_bytes()
    assert len(picture) < MAX_BYTES
    assert b"@keyframes" in picture
    assert picture.count(b'<g class="frame') == len(STOPS)
    assert re.findall(rb"url\([^#]", picture) == [], "a page loads no other file for it"


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    assert [target for target in targets if not (ROOT / target).exists()] == []


@pytest.mark.parametrize("command", ["gpumon", *(f"gpumon {name}" for name in commands.gpumon.commands)])
def test_the_changelog_names_every_command(command: str) -> None:
    assert re.search(rf"`{command}[` ]", (ROOT / "CHANGELOG.md").read_text())


def keys_of_the_readme() -> set[str]:
    """The keys of the README's table, as help shows them."""
    table = README.partition("| key | action |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)
    return {key for row in rows for key in re.findall(r"`([^`]+)`", row)}


def test_every_key_of_the_table_has_a_meaning() -> None:
    assert keys_of_the_readme() - {key_text(key) for key in KEY_MEANINGS} == set()


def test_every_meaning_that_a_key_has_is_in_the_table() -> None:
    used = {meaning_of(binding.id or "") for _, binding in all_bindings()}
    keys = {meaning.name: {key_text(key) for key in meaning.keys} for meaning in MEANINGS if meaning.name in used}
    assert [name for name in keys if not keys[name] & keys_of_the_readme()] == []


def test_the_readme_is_short() -> None:
    assert len(README.split()) <= 900


@pytest.mark.parametrize("name", list(commands.gpumon.commands))
def test_the_table_of_commands_and_the_pages_have_every_command(name: str) -> None:
    table = (ROOT / "docs/commands.md").read_text().partition("| command | what it does |")[2].partition("\n\n")[0]
    assert re.search(rf"`gpumon {name}[` ]", table)
    assert any(re.search(rf"\bgpumon {name}\b", page.read_text()) for page in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize(
    ("document", "pattern"),
    [
        ("README.md", r"`(\w+)`"),
        ("docs/workloads.md", r"^\| `(\w+)` \|"),
        ("workloads/README.md", r"^\| `(\w+)\.py` \|"),
    ],
)
def test_the_documents_name_every_workload(document: str, pattern: str) -> None:
    text = (ROOT / document).read_text()
    names = {path.stem for path in (ROOT / "workloads").glob("[!_]*.py")}
    assert names <= {"errors", *re.findall(pattern, text, re.MULTILINE)}
