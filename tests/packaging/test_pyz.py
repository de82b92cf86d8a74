"""gpumon.pyz: the same bytes from the same wheels, unpacked once to a private folder, from which its children start."""

import importlib.util
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import time
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from types import ModuleType

import pytest

from gpumon import __version__
from tests.nvml_mock import NvmlMock

ROOT = Path(__file__).resolve().parents[2]


def builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_pyz", ROOT / "packaging" / "build_pyz.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def start(file: Path, cache: Path, *argv: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {"XDG_CACHE_HOME": str(cache), "PATH": "/usr/bin:/bin", **variables}
    command = [sys.executable, "-I", "-S", str(file), *argv]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A file with a package that stands in for gpumon."""
    files = {"gpumon/__init__.py": b"", "gpumon/cli.py": b"def main(): print(__file__)"}
    (tmp_path / "small.pyz").write_bytes(builder().pyz(files))
    return tmp_path / "small.pyz"


def test_the_same_files_in_any_order_give_the_same_bytes() -> None:
    pyz = builder().pyz
    assert pyz({"a": b"1", "b": b"2"}) == pyz({"b": b"2", "a": b"1"})
    assert pyz({"a": b"1"}) != pyz({"a": b"2"})


def test_a_wheel_for_one_platform_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not pure Python"):
        builder().files_of([tmp_path / "x-1-cp311-cp311-linux_x86_64.whl"])


def test_it_unpacks_once_to_a_private_folder(small: Path, tmp_path: Path) -> None:
    first = Path(start(small, tmp_path / "cache").stdout.strip())
    assert first.name == "cli.py"
    assert first.parents[1].parent == tmp_path / "cache" / "gpumon-pyz"
    for folder in (first.parents[1], first.parents[2]):
        assert folder.stat().st_mode & 0o777 == 0o700
    first.write_text("def main(): print('kept')")
    assert start(small, tmp_path / "cache").stdout == "kept\n"
    assert not list((tmp_path / "cache" / "gpumon-pyz").glob("unpacking-*"))


def test_a_folder_that_others_may_write_to_is_not_used(small: Path, tmp_path: Path) -> None:
    shared = tmp_path / "cache" / "gpumon-pyz"
    shared.mkdir(parents=True)
    shared.chmod(0o777)
    runtime = tmp_path / "runtime"
    done = start(small, tmp_path / "cache", XDG_RUNTIME_DIR=str(runtime))
    assert done.stdout.startswith(str(runtime))
    assert not list(shared.iterdir())


@pytest.mark.long
def test_the_real_file_runs_its_collector(nvml_mock: NvmlMock, tmp_path: Path) -> None:
    files = {}
    for folder, name in (
        (ROOT / "gpumon", "gpumon"),
        (ROOT / "workloads", "gpumon/workloads"),
        (ROOT / "docs", "gpumon/docs"),
    ):
        for path in folder.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                files[f"{name}/{path.relative_to(folder)}"] = path.read_bytes()
    for line in (ROOT / "packaging" / "pyz-requirements.txt").read_text().splitlines()[1:]:
        name = line.partition("==")[0]
        if name != "tomli":  # only for Python 3.10
            for entry in distribution(name).files or ():
                if entry.suffix == ".py":
                    files[str(entry)] = Path(str(entry.locate())).read_bytes()
    file = tmp_path / "gpumon.pyz"
    file.write_bytes(builder().pyz(files))
    environment = nvml_mock.environment(gpus=3)
    began = time.monotonic()
    done = start(file, tmp_path / "cache", "status", "--json", **environment)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["devices"]) == 3
    assert time.monotonic() - began < 20
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None


def test_the_notes_of_a_release_are_the_section_of_its_tag() -> None:
    command = [sys.executable, str(ROOT / "packaging" / "release_notes.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout.startswith("### ")
    other = subprocess.run([*command, "v99.0.0"], capture_output=True, text=True, timeout=20, check=False)
    assert f"v99.0.0 is not v{__version__}" in other.stderr
    notes = runpy.run_path(command[1])["notes"]
    assert notes("# C\n## [2.0.0] - 2027\n\nnew\n## [1.0.0]\n\nold\n", "1.0.0") == "old\n"
    with pytest.raises(ValueError, match=r"no section 3\.0\.0"):
        notes("# C\n## [2.0.0]\n\nnew\n", "3.0.0")


def test_recipes_name_the_port_and_version_of_the_code() -> None:
    for name in ("gpumon-exporter.service", "kubernetes.yaml"):
        assert "19440" in (ROOT / "packaging" / name).read_text()
    assert f"gpumon:{__version__}" in (ROOT / "packaging" / "kubernetes.yaml").read_text()
    recipe = (ROOT / "packaging" / "conda" / "recipe.yaml").read_text()
    assert f'version: "{__version__}"' in recipe
    project = (ROOT / "pyproject.toml").read_text().partition("\ndependencies = [")[2].partition("\n]\n")[0]
    required = re.findall(r'^  ["\']([\w-]+)[=><]', project, re.MULTILINE)
    assert len(required) >= 7
    assert {name for name in required if f"- {name} " not in recipe} == set()
    flake = (ROOT / "flake.nix").read_text()
    assert {name for name in required if name.replace("_", "-") not in flake} <= {"tomli"}, "nixpkgs has Python 3.11"
    (textual,) = re.findall(r'version = "([0-9.]+)"', flake)
    assert f"textual=={textual}" in project


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    for unit in (ROOT / "packaging").glob("*.service"):
        copy = tmp_path / unit.name
        copy.write_text(re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text()))
        command = ["systemd-analyze", *(["--user"] if "user" in unit.name else []), "verify", "--man=no", str(copy)]
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert unit.name not in done.stderr  # a line that is ignored is a warning
