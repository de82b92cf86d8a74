"""What a stranger's file does when it is loaded costs that file alone, and nothing of it comes into gpumon."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.workload_runs import catalogue
from gpumon.workload_runs.catalogue import BrokenWorkload, Catalogue, load_catalogue, runner, workloads_folder
from gpumon.workload_runs.parameters import ParameterKind
from tests.core.test_ownership import needs_root
from tests.workload_runs.conftest import workload_file

SEVEN = {"matmul", "transfer", "bandwidth", "sync", "oom", "fragmentation", "launch"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the user's workloads."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "config" / "gpumon" / "workloads"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without gpumon's own workloads."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "_run.py").symlink_to(runner())
    (tmp_path / "own" / "_kit").symlink_to(runner().parent / "_kit")
    monkeypatch.setattr(catalogue, "workloads_folder", lambda: tmp_path / "own")


def test_own_workloads_describe_themselves() -> None:
    result = load_catalogue()
    there = {file.stem for file in workloads_folder().glob("[!_]*.py")}
    if there >= SEVEN:
        assert result.broken == ()
        assert {workload.name for workload in result.workloads} == there
    for workload in result.workloads:
        assert workload.origin == "gpumon"
        assert workload.name == workload.file.stem
        assert workload.purpose
        assert workload.needs
        assert workload.code or workload.name not in SEVEN


def test_the_code_of_own_workloads_is_python_that_can_be_copied() -> None:
    for workload in load_catalogue().workloads:
        ast.parse(workload.code)
        ast.parse(workload.program)
        assert all(not line.startswith(" ") for line in workload.code.splitlines()[:1])


def test_every_workload_has_a_program() -> None:
    programs = {file.name for file in (workloads_folder() / "_programs").glob("*.py")}
    assert programs == {file.name for file in workloads_folder().glob("[!_]*.py")}


@pytest.mark.usefixtures("alone")
def test_code_is_text_in_bounds(folder: Path) -> None:
    top = "def work():\n\treturn '\x1b[2J' + '" + "x" * 500 + "'"
    file = workload_file(folder / "toy.py", top=top)
    file.write_text(file.read_text().replace("parts={}", "code=(work,)"))
    (toy,) = load_catalogue().workloads
    first, second = toy.code.splitlines()
    assert first == "def work():"
    assert second.startswith("    return '\ufffd[2J' + 'xxx")
    assert len(second) <= 200
    file.write_text(file.read_text().replace("code=(work,)", "code=(len,)"))
    (broken,) = load_catalogue().broken
    assert broken.reason.startswith("TypeError: ")


def test_nothing_of_a_workload_is_imported_into_this_process(folder: Path) -> None:
    workload_file(folder / "mine.py", top="import this_is_counted") and (folder / "this_is_counted.py").write_text("")
    before = set(sys.modules)
    load_catalogue()
    assert not [name for name in set(sys.modules) - before if "kit" in name or "workload" in name or "counted" in name]


def test_describing_a_workload_does_not_import_torch(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("import os; os.write(2, b'torch was imported'); os._exit(9)")
    files = [str(file) for file in sorted(workloads_folder().glob("[!_]*.py"))]
    done = subprocess.run(
        [sys.executable, str(runner()), "--describe", *files],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.split()) >= len(files) == done.stdout.count('"purpose"')


@pytest.mark.usefixtures("alone")
def test_a_file_in_the_configuration_folder_is_found(folder: Path) -> None:
    top = "from _kit import flag, integer"
    file = workload_file(folder / "toy.py", top=top, why="It \x1b[2J needs a GPU.")
    text = file.read_text().replace(
        "parts={}",
        "parameters=(integer('size', 8, 1, 9, 'Rows.', unit='rows', default_cpu=2), flag('on', True, 'On.'))",
    )
    file.write_text(text)
    (toy,) = load_catalogue().workloads
    assert (toy.name, toy.file, toy.purpose, toy.needs, toy.origin) == (
        "toy",
        file,
        "A toy.",
        "nothing",
        "configuration",
    )
    assert toy.why_not_cpu == "It \ufffd[2J needs a GPU."
    assert [(parameter.name, parameter.kind) for parameter in toy.parameters] == [
        ("size", ParameterKind.INTEGER),
        ("on", ParameterKind.FLAG),
    ]
    assert (toy.parameters[0].default_on("cuda:0"), toy.parameters[0].default_on("cpu")) == (8, 2)
    assert load_catalogue().get("toy") == toy
    assert load_catalogue().get("toys") is None


HUGE_BOUND = """
from _kit import Parameter, Workload
WORKLOAD = Workload("p", "P.", "", None, None, (Parameter("n", "integer", 1, "", maximum=10**400),))
"""
ENDED = "No description: the file exited or hung while it was loaded."


@pytest.mark.sampled(4)
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import sys; sys.exit(0)", ENDED),
        ("import os; os._exit(0)", ENDED),
        ("import os; os.kill(os.getpid(), 9)", ENDED),
        ("import time; print('{', flush=True); time.sleep(60)", ENDED),
        ("def broken(:", "SyntaxError: "),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise RuntimeError('\\x1b[2Jno')", "RuntimeError: \ufffd[2Jno"),
        ("", "TypeError: the file defines no Workload named WORKLOAD"),
        ("WORKLOAD = 7", "TypeError: the file defines no Workload named WORKLOAD"),
        ("print('[' * 200_000); raise KeyError(1)", "KeyError: 1"),
        ("print('{\"file\": []}'); raise KeyError(1)", "KeyError: 1"),
        ("import sys; sys.stdout.buffer.write(bytes(range(256)) * 99); print(); raise KeyError(1)", "KeyError: 1"),
        ("import subprocess, os; subprocess.Popen(['sleep', '60'], start_new_session=False); os._exit(0)", ENDED),
        (HUGE_BOUND, "The description is invalid: "),
    ],
    ids=range(14),
)
def test_a_broken_file_costs_itself_alone(
    folder: Path, source: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "_TIMEOUT_SECONDS", 1.5)
    (folder / "broken.py").write_text(source)
    workload_file(folder / "toy.py")
    result = load_catalogue()
    assert [workload.name for workload in result.workloads] == ["toy"]
    (broken,) = result.broken
    assert broken.file == folder / "broken.py"
    assert broken.reason.startswith(reason)


@pytest.mark.usefixtures("alone")
def test_a_file_that_prints_is_described_all_the_same(folder: Path) -> None:
    workload_file(folder / "toy.py", top="print('{}'); print('hello', end='')")
    assert [workload.name for workload in load_catalogue().workloads] == ["toy"]


@pytest.mark.usefixtures("alone")
def test_of_two_with_one_name_the_first_stays(folder: Path) -> None:
    first, second = (workload_file(folder / name) for name in ("a.py", "b.py"))
    result = load_catalogue()
    assert [workload.file for workload in result.workloads] == [first]
    assert result.broken == (BrokenWorkload(second, f"Workload toy already exists in {first}."),)


def announce(site: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Catalogue:
    """Installs a package that announces workloads."""
    package, facts = site / "their_package", site / "their_package-1.0.dist-info"
    package.mkdir(parents=True)
    facts.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('the package was imported')")
    workload_file(package / "toy.py")
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[gpumon.workloads]\n{text}\n")
    monkeypatch.syspath_prepend(str(site))
    return load_catalogue()


@pytest.mark.usefixtures("alone")
def test_workloads_of_packages_are_found_without_importing_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = announce(tmp_path / "site", "toy = their_package.toy:WORKLOAD", monkeypatch)
    assert result.broken == ()
    assert [(workload.name, workload.origin) for workload in result.workloads] == [("toy", "their-package")]
    assert "their_package" not in sys.modules


@pytest.mark.usefixtures("alone")
def test_an_announcement_that_makes_no_sense_costs_itself_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "bad = not a module!\ngone = their_package.gone\ntoy = their_package.toy"
    result = announce(tmp_path / "site", lines, monkeypatch)
    assert [workload.name for workload in result.workloads] == ["toy"]
    assert [workload.file.name for workload in result.broken if workload.file.suffix] == ["gone.py"]


@needs_root
@pytest.mark.usefixtures("alone")
def test_root_does_not_load_the_workload_of_another_user(folder: Path, tmp_path: Path) -> None:
    file = workload_file(folder / "toy.py", top=f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    for path, subject in ((folder, f"The folder {folder}"), (file, "The file")):
        os.chown(path, 4242, 4242)
        result = load_catalogue()
        assert result.workloads == ()
        (broken,) = result.broken
        assert (broken.file, broken.reason.partition(".")[0]) == (file, f"{subject} belongs to another user (UID 4242)")
        assert "Run gpumon as the owner" in broken.reason
        os.chown(path, 0, 0)
    assert not (tmp_path / "ran").exists()
    assert [workload.name for workload in load_catalogue().workloads] == ["toy"]
    assert (tmp_path / "ran").exists()


@needs_root
@pytest.mark.usefixtures("alone")
def test_root_imports_no_site_packages_of_another_user(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PYTHONNOUSERSITE", raising=False)
    workload_file(folder / "toy.py", top="import sys; assert sys.flags.no_user_site, 'imports from HOME'")
    assert "imports from HOME" in load_catalogue().broken[0].reason
    os.chown(tmp_path / "home", 4242, 4242)
    assert load_catalogue().broken == ()
