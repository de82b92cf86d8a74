"""What the README and the changelog promise is there: two commands to copy, pictures, keys, counts, every command."""

import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from gpumon import cli
from gpumon.diagnosis.alerts import ALERT_RULES
from gpumon.diagnosis.catalogue import ERRORS, xids
from gpumon.ui.bindings import APP_BINDINGS, all_bindings
from gpumon.ui.screens.help import key_text
from tests.workloads.conftest import load_workload

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
    command = subprocess.run(["sh", "-c", extraction[1]], cwd=ROOT, check=True, capture_output=True, text=True)
    assert command.stdout == COMMANDS[1] + "\n"
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


NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty"
)


def in_words(count: int) -> str:
    """A count as the documents write it: in words up to twenty, in digits from there on."""
    words = NUMBERS.split()
    return words[count] if count < len(words) else str(count)


def counts() -> dict[str, set[str]]:
    """Every count that a document states, as a pattern with its noun, and the documents that state it."""
    mistakes = load_workload("_kit.mistakes").MISTAKES.values()
    all_mistakes, on_cpu = in_words(len(mistakes)), in_words(sum(mistake.on_cpu for mistake in mistakes))
    both = {"README.md", "CHANGELOG.md"}
    return {
        rf"{len(ERRORS) - len(xids.ERRORS)} errors": both,
        rf"{len(xids.ERRORS)} Xids": both,
        rf"{in_words(len(ALERT_RULES))} alert rules": {"README.md"},
        rf"{all_mistakes} (?:such )?errors": both,
        rf"{on_cpu} of which also occur on the CPU": both,
    }


@pytest.mark.parametrize(
    ("document", "pattern"),
    [(document, pattern) for pattern, documents in counts().items() for document in sorted(documents)],
)
def test_counts_are_those_of_the_code(document: str, pattern: str) -> None:
    text = " ".join((ROOT / document).read_text().split())
    assert re.search(rf"\b{pattern}", text, re.IGNORECASE), f"{document} states another count"


def test_the_table_of_keys_has_every_key_of_the_app() -> None:
    table = README.partition("| key | action |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)
    listed = {key for row in rows for key in re.findall(r"`([^`]+)`", row)}
    known = {key_text(key) for _, binding in all_bindings() for key in binding.key.split(",")}
    assert listed - known <= {"ctrl+p", "tab"}, "keys of Textual"
    missing = [item.id for item in APP_BINDINGS if item.show and key_text(item.key.split(",")[0]) not in listed]
    assert missing == []


@pytest.mark.parametrize("document", ["README.md", "workloads/README.md"])
def test_the_table_of_workloads_has_every_workload(document: str) -> None:
    rows = set(re.findall(r"^\| `(\w+)(?:\.py)?` \|", (ROOT / document).read_text(), re.MULTILINE))
    names = {path.stem for path in (ROOT / "workloads").glob("[!_]*.py")}
    assert names - rows <= ({"errors"} if document == "README.md" else set()), "errors has its own paragraph"
