"""What the documents state is so: counts, sections about alerts, keys of the configuration, pages of screens."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from textual.screen import ModalScreen

from gpumon.cli import commands
from gpumon.health.alerts import ALERT_RULES, JOB_HANGS, OUT_OF_MEMORY, RULE_LABELS, Alert, Severity, rule_label
from gpumon.present.alerts import alert_section
from gpumon.ui.keymap import all_bindings
from gpumon.ui.screens.base import BaseScreen
from tests.workloads.conftest import load_workload

ROOT = Path(__file__).resolve().parents[2]
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
    workload = {"docs/workloads.md", "CHANGELOG.md"}
    return {
        rf"{in_words(len(ALERT_RULES))} alert rules": {"docs/alerts.md"},
        rf"{all_mistakes} (?:such )?errors": workload,
        rf"{on_cpu} of which also occur on the CPU": workload,
    }


@pytest.mark.parametrize(
    ("document", "pattern"),
    [(document, pattern) for pattern, documents in counts().items() for document in sorted(documents)],
)
def test_counts_are_those_of_the_code(document: str, pattern: str) -> None:
    text = " ".join((ROOT / document).read_text().split())
    assert re.search(rf"\b{pattern}", text, re.IGNORECASE), f"{document} states another count"


def test_the_files_that_the_documents_name_exist() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "workloads" / "README.md"]
    named = {
        (page.name, name)
        for page in pages
        for name in re.findall(r"\b(?:tests|gpumon|workloads)/[a-z_/]+\.(?:py|md|c|txt)\b", page.read_text())
    }
    assert len(named) > 50
    assert {(page, name) for page, name in named if not (ROOT / name).exists()} == set()


def sections(page: str) -> list[str]:
    return re.findall(r"^## (.+)$", (ROOT / page).read_text(), re.MULTILINE)


def test_every_alert_rule_has_a_section_and_every_section_a_rule() -> None:
    labels = [rule.label for rule in ALERT_RULES]
    assert sorted(sections("docs/alerts.md")) == sorted([*labels, RULE_LABELS[JOB_HANGS], RULE_LABELS[OUT_OF_MEMORY]])


def test_an_alert_leads_to_its_section() -> None:
    ids = ["xid-79", OUT_OF_MEMORY, *(alert_id for rule in ALERT_RULES for alert_id in rule.plurals)]
    for alert_id in ids:
        label = rule_label(alert_id)
        assert label in sections("docs/alerts.md")
        assert alert_section(Alert(alert_id, Severity.WARNING, "")) == f"Docs: Alerts, '{label}' (?, enter)"


def test_an_alert_of_the_host_leads_to_the_page_about_faults() -> None:
    assert rule_label("driver") is None
    assert alert_section(Alert("driver", Severity.CRITICAL, "")) == "Docs: Faults (ctrl+p)"
    assert (ROOT / "docs/faults.md").is_file()


def subclasses(kind: type[BaseScreen[Any]]) -> set[type[BaseScreen[Any]]]:
    return set(kind.__subclasses__()).union(*map(subclasses, kind.__subclasses__()))


def test_every_screen_has_a_page() -> None:
    assert list(all_bindings()), "imports every module"
    pages = {
        kind.__name__: kind.PAGE
        for kind in subclasses(BaseScreen)
        if kind.__module__.startswith("gpumon.") and not issubclass(kind, ModalScreen) and not kind.__subclasses__()
    }
    assert pages.pop("ReadingScreen") == ""
    assert [name for name, page in pages.items() if not (ROOT / page).is_file()] == []


def test_the_page_about_the_configuration_has_every_key_and_table() -> None:
    page = (ROOT / "docs/configuration.md").read_text()
    result = CliRunner().invoke(commands.gpumon, ["config", "--json"])
    names = {key["key"].partition(".")[::2] for key in json.loads(result.stdout)["keys"]}
    tables = {table for table, key in names if key} - set(commands.gpumon.commands)
    assert {"alerts", "columns", "keymap"} <= tables
    assert [table for table in tables if f"[{table}]" not in page] == []
    assert [name for name, key in names if not key and f"| `{name}` |" not in page] == []
