"""Rules that hold for the text of every file."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT_SUFFIXES = {
    *(".py", ".md", ".toml", ".tcss", ".c", ".h", ".yaml", ".yml", ".json", ".jsonl", ".log", ".txt", ".svg", ".sh"),
    "",
}
OWN = Path(__file__)

HEX_COLOR = re.compile(r"#[0-9a-fA-F]{3,8}\b")
FOREIGN_PACKAGE = re.compile(
    r"\b(?:install|pipx run|uvx(?! --from))(?:\s+-\S+(?:\s+[\w./]+)?)*\s+[\"']?gpumon(?![\w-])"
)
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


def violations(pattern: re.Pattern[str], *needles: str, suffix: str | None = None) -> list[str]:
    """Where a pattern matches; each match contains one of the needles, which are found faster."""
    return [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path, text in texts()
        if (suffix is None or path.suffix == suffix) and any(needle in text for needle in needles)
        for match in pattern.finditer(text)
    ]


def test_the_rules_find_what_they_forbid() -> None:
    assert HEX_COLOR.search("color: #ff0;")
    assert FOREIGN_PACKAGE.search("pip install gpumon")
    assert FOREIGN_PACKAGE.search("pipx install --python 3.12 'gpumon[torch]'")
    assert FOREIGN_PACKAGE.search("uvx gpumon demo")
    assert not FOREIGN_PACKAGE.search("pip install -U gpumon-tui, then start gpumon")
    assert FOREIGN_PATH.search("see /root/notes")


def test_stylesheets_use_colors_of_the_theme() -> None:
    assert violations(HEX_COLOR, "#", suffix=".tcss") == []


def test_no_text_installs_the_other_project_of_this_name() -> None:
    assert violations(FOREIGN_PACKAGE, "install", "pipx run", "uvx") == []


def test_no_paths_of_other_hosts() -> None:
    assert violations(FOREIGN_PATH, "/work/", "/root/") == []


def test_no_compiled_files() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True)
    assert not [name for name in listed.stdout.splitlines() if re.search(r"\.(?:so(?:\.\d+)*|o|a|pyc)$", name)]
