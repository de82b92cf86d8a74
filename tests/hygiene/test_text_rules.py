"""Rules that hold for the text of every file."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT_SUFFIXES = {".py", ".md", ".toml", ".tcss", ".c", ".h", ".yaml", ".yml", ".json", ".txt", ".sh", ""}
OWN = Path(__file__)

HEX_COLOUR = re.compile(r"#[0-9a-fA-F]{3,8}\b")
FOREIGN_PACKAGE = re.compile(r"(?:install|pipx run|uvx)(?:\s+-\S+(?:\s+[\w./]+)?)*\s+[\"']?gpumon(?![\w-])")
FOREIGN_PATH = re.compile(r"(?<![\w.])/(?:work|root)/")


def texts() -> Iterator[tuple[Path, str]]:
    """Every text file that is, or is about to be, in the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.suffix in TEXT_SUFFIXES and path.is_file() and path != OWN:
            yield path, path.read_text(errors="replace")


def violations(pattern: re.Pattern[str], suffix: str | None = None) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path, text in texts()
        if suffix is None or path.suffix == suffix
        for found in pattern.finditer(text)
    ]


def test_the_rules_find_what_they_forbid() -> None:
    assert HEX_COLOUR.search("color: #ff0;")
    assert FOREIGN_PACKAGE.search("pip install gpumon")
    assert FOREIGN_PACKAGE.search("pipx install --python 3.12 'gpumon[torch]'")
    assert FOREIGN_PACKAGE.search("uvx gpumon demo")
    assert not FOREIGN_PACKAGE.search("pip install -U gpumon-tui, then start gpumon")
    assert FOREIGN_PATH.search("see /root/notes")


def test_stylesheets_have_no_colours_of_their_own() -> None:
    assert violations(HEX_COLOUR, ".tcss") == []


def test_nobody_is_told_to_install_another_projects_package() -> None:
    assert violations(FOREIGN_PACKAGE) == []


def test_no_paths_of_other_machines() -> None:
    assert violations(FOREIGN_PATH) == []


def test_no_compiled_files() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True)
    assert not [name for name in listed.stdout.splitlines() if re.search(r"\.(?:so(?:\.\d+)*|o|a|pyc)$", name)]
