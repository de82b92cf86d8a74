"""The start of gpumon.pyz: unpack it once to a private folder, and run gpumon from there.

gpumon's child processes are started by the paths of their files, and the probe's files are read by other programs, so
that they cannot stay inside of the zip file. Any Python must be able to parse this file, to say that it is too old.
"""

import os
import shutil
import stat
import sys
import tempfile
import zipfile

_CONTENT = "@CONTENT@"
"""A digest of the files, written by the build."""


def _folders():
    """Where it may be unpacked, best first."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    yield os.path.join(cache, "gpumon-pyz")
    if os.environ.get("XDG_RUNTIME_DIR"):
        yield os.path.join(os.environ["XDG_RUNTIME_DIR"], "gpumon-pyz")
    yield os.path.join(tempfile.gettempdir(), "gpumon-pyz-%d" % os.getuid())


def _is_private(folder):
    """Whether a folder is a real one of this user, into which no other user may write."""
    status = os.lstat(folder)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


def _unpacked(archive):
    """The folder with the files; they are unpacked if they are not there.

    Raises:
        OSError: No folder can be used.
    """
    errors = []
    for parent in _folders():
        try:
            os.makedirs(parent, mode=0o700, exist_ok=True)
            if not _is_private(parent):
                raise OSError("another user may write to it")
            folder = os.path.join(parent, _CONTENT)
            if not os.path.isdir(folder):
                _unpack(archive, parent, folder)
            if not _is_private(folder):
                raise OSError("another user may write to it")
            return folder
        except OSError as error:
            errors.append("%s: %s" % (parent, error))
    raise OSError("; ".join(errors))


def _unpack(archive, parent, folder):
    """Unpack completely or not at all; of two that do it at the same time, the first one counts."""
    partial = tempfile.mkdtemp(prefix="unpacking-", dir=parent)
    try:
        folders = set()
        with zipfile.ZipFile(archive) as files:
            for name in files.namelist():  # not extractall(), which takes twice as long for so many small files
                path = os.path.join(partial, name)
                if os.path.dirname(path) not in folders:
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    folders.add(os.path.dirname(path))
                with open(path, "wb", 0) as file:
                    file.write(files.read(name))
        os.remove(os.path.join(partial, "__main__.py"))
        try:
            os.rename(partial, folder)
        except OSError:
            if not os.path.isdir(folder):
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def main():
    """Run gpumon."""
    if sys.version_info < (3, 10):
        sys.exit(
            "gpumon: Python 3.10 or later is needed, and this is %s. Start it with a newer one: "
            "python3.12 gpumon.pyz" % sys.version.split()[0]
        )
    try:
        folder = _unpacked(sys.path[0])
        sys.path[:1] = [folder, os.path.join(folder, "seldom.zip")]
    except OSError as error:
        sys.exit("gpumon: No folder to unpack to (%s). Set XDG_CACHE_HOME to one that you may write to." % error)
    from gpumon.cli import main as run

    run()


main()
