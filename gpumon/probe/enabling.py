"""The probe in every later training run of a user: a file in the packages of an environment, or a shell's profile.

The file makes Python look at the names of imported modules; only when one is ``torch``, it runs what `gpumon watch`
puts first in ``PYTHONPATH``. All else that Python pays at its start is the import of a small module.
"""

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gpumon.core.new_files import replace_file
from gpumon.core.ownership import root_ownership_problem
from gpumon.core.problems import CommandError, ProblemCode
from gpumon.core.text import safe_bytes, safe_text

SITE: Final = Path(__file__).with_name("site")
"""The folder with the ``sitecustomize`` that Python imports at its start."""
_FILE: Final = "gpumon_probe.pth"
_MODULE: Final = "_gpumon_probe.py"
_MARK: Final = "# gpumon enable"
_PROFILES: Final = {"bash": ".bashrc", "zsh": ".zshrc"}
_TIMEOUT_SECONDS: Final = 20.0
_FIND_FOLDERS: Final = (
    "import site, sysconfig; print(sysconfig.get_path('purelib'), site.getusersitepackages(), sep=chr(10))"
)
_LINE: Final = (
    "import _gpumon_probe; _gpumon_probe.install({uid}, {path!r})  {mark}; gpumon disable removes this file\n"
)


def enable_python(python: str) -> Path:
    """Write the files into the environment of an interpreter; return the path of the one that Python looks for.

    Raises:
        CommandError: The program is not Python, or no folder can be written.
    """
    content = _LINE.format(mark=_MARK, uid=os.getuid(), path=str(SITE / "sitecustomize.py")).encode()
    module = (SITE / _MODULE).read_bytes()
    failure = ""
    for folder in _folders(python):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            replace_file(folder / _MODULE, module, 0o644)
            replace_file(folder / _FILE, content, 0o644)
        except OSError as error:
            failure = error.strerror or str(error)
        else:
            return folder / _FILE
    raise CommandError.missing(
        ProblemCode.NOT_WRITTEN, f"The environment of {safe_text(python, 200)} cannot be written: {failure}."
    )


def enabled_files(python: str) -> list[Path]:
    """The files in the environment of an interpreter.

    Raises:
        CommandError: The program is not Python.
    """
    return [folder / _FILE for folder in _folders(python) if (folder / _FILE).is_file()]


def enable_shell(shell: str) -> Path:
    """Add a line to the profile of a shell; return the profile.

    Raises:
        CommandError: The shell is another one, or its profile cannot be written.
    """
    profile = _profile(shell)
    line = f'export PYTHONPATH={shlex.quote(str(SITE))}"${{PYTHONPATH:+:$PYTHONPATH}}"  {_MARK}\n'
    _rewrite(profile, [*_other_lines(profile), line])
    return profile


def enabled_profiles() -> list[Path]:
    """The profiles with the line."""
    profiles = (Path.home() / name for name in _PROFILES.values())
    return [profile for profile in profiles if profile.is_file() and _MARK in profile.read_text("utf-8", "replace")]


def disable(python: str) -> Iterator[Path]:
    """Remove the files in the environment of an interpreter, and the lines in profiles; yield what was changed.

    Raises:
        CommandError: The program is not Python, or something cannot be written.
    """
    for path in enabled_files(python):
        try:
            path.unlink()
            path.with_name(_MODULE).unlink(missing_ok=True)
            for compiled in path.parent.glob(f"__pycache__/{Path(_MODULE).stem}.*.pyc"):
                compiled.unlink(missing_ok=True)
        except OSError as error:
            raise _not_written(path, error) from None
        yield path
    for profile in enabled_profiles():
        _rewrite(profile, _other_lines(profile))
        yield profile


def _folders(python: str) -> list[Path]:
    """The folders for packages of an interpreter: that of its environment, and that of this user."""
    problem = root_ownership_problem(Path(python).absolute())
    if problem is not None:
        raise CommandError.missing(problem.code, problem.reason, problem.remedy)
    try:
        done = subprocess.run(
            [python, "-I", "-c", _FIND_FOLDERS],
            capture_output=True,
            timeout=_TIMEOUT_SECONDS,
            check=True,
            stdin=subprocess.DEVNULL,
            cwd="/",
        )
        common, own = (Path(os.fsdecode(line)) for line in done.stdout.splitlines()[-2:])
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        detail = safe_bytes(getattr(error, "stderr", b"") or b"", 200) or str(error)
        raise CommandError.usage(
            ProblemCode.NOT_SUPPORTED, f"{safe_text(python, 200)} is not Python: {safe_text(detail, 200)}."
        ) from None
    return [common, own]


def _profile(shell: str) -> Path:
    name = _PROFILES.get(Path(shell).name)
    if name is None:
        raise CommandError.usage(
            ProblemCode.NOT_SUPPORTED,
            f"gpumon does not know the profile of the shell {safe_text(shell, 100)}.",
            f"Add {SITE} to PYTHONPATH in it.",
        )
    home = Path.home()
    if home.stat().st_uid != os.geteuid():
        raise CommandError.missing(
            ProblemCode.NO_PERMISSION, f"{safe_text(str(home), 200)} belongs to another user.", "Run it as that user."
        )
    return home / name


def _other_lines(profile: Path) -> list[str]:
    try:
        lines = profile.read_text("utf-8", "surrogateescape").splitlines(keepends=True)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _not_written(profile, error) from None
    return [line for line in lines if _MARK not in line]


def _rewrite(profile: Path, lines: list[str]) -> None:
    """Write a profile through the link that it may be, with its own mode."""
    try:
        target = profile.resolve()
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
        replace_file(target, "".join(lines).encode("utf-8", "surrogateescape"), mode)
    except OSError as error:
        raise _not_written(profile, error) from None


def _not_written(path: Path, error: OSError) -> CommandError:
    return CommandError.missing(
        ProblemCode.NOT_WRITTEN, f"{safe_text(str(path), 200)} cannot be written: {error.strerror or error}."
    )
