"""Build gpumon.pyz, one file that runs with any Python from 3.10 on, from the wheel and its pure-Python dependencies.

    python packaging/build_pyz.py dist/gpumon_tui-0.1.0-py3-none-any.whl --output gpumon.pyz

The file is the same byte for byte whenever it is built from the same wheels with the same version of zlib.
"""

import argparse
import hashlib
import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).resolve().parent
_START: Final = b"#!/usr/bin/env python3\n"
_TIME: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip file can have."""
_LEFT_OUT: Final = (".dist-info/RECORD", ".dist-info/INSTALLER", ".pyi")
_ZIPPED: Final = ("mdit_py_plugins/", "prometheus_client/", "pygments/", "textual/demo/")
"""What few starts import stays one file: half of the time to unpack goes by the number of files."""


def download(folder: Path) -> None:
    """Download the wheels of the requirements for every platform.

    Raises:
        subprocess.CalledProcessError: A wheel is missing.
    """
    options = ("--no-deps", "--only-binary=:all:", "--platform=any", "--python-version=3.10")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", *options]
    requirements = str(_HERE / "pyz-requirements.txt")
    subprocess.run([*command, "--dest", str(folder), "--requirement", requirements], check=True)


def files_of(wheels: list[Path]) -> dict[str, bytes]:
    """The content of wheels by path.

    Raises:
        ValueError: A wheel is not pure Python.
    """
    files: dict[str, bytes] = {}
    for wheel in sorted(wheels):
        if not wheel.name.endswith("-none-any.whl"):
            raise ValueError(f"{wheel.name} is not pure Python")
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if not name.endswith(("/", *_LEFT_OUT)):
                    files[name] = archive.read(name)
    return files


def pyz(files: dict[str, bytes]) -> bytes:
    """The one file."""
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    start = (_HERE / "pyz_main.py").read_text("utf-8").replace("@CONTENT@", digest.hexdigest()[:32])
    seldom = {name: content for name, content in files.items() if name.startswith(_ZIPPED)}
    unpacked = {name: content for name, content in files.items() if name not in seldom}
    return _archive({**unpacked, "seldom.zip": _archive(seldom), "__main__.py": start.encode()}, _START)


def _archive(files: dict[str, bytes], start: bytes = b"") -> bytes:
    """A zip file, the same for the same files."""
    buffer = io.BytesIO()
    buffer.write(start)
    with zipfile.ZipFile(buffer, "a", compresslevel=9) as archive:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _TIME)
            entry.compress_type = zipfile.ZIP_STORED if name.endswith(".zip") else zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    return buffer.getvalue()


def main() -> None:
    """Build the file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("wheel", type=Path, help="gpumon's wheel")
    parser.add_argument("--wheels", type=Path, help="folder with the other wheels  [default: downloaded]")
    parser.add_argument("--output", type=Path, default=Path("gpumon.pyz"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.wheels or Path(temporary)
        if options.wheels is None:
            download(folder)
        content = pyz(files_of([options.wheel, *folder.glob("*.whl")]))
    options.output.write_bytes(content)
    options.output.chmod(0o755)
    print(f"{options.output}: {len(content) / 1e6:.1f} MB, sha256 {hashlib.sha256(content).hexdigest()}")


if __name__ == "__main__":
    main()
