"""Waits for the import of torch in the programs of one user; `gpumon enable` copies it into an environment.

Each start of each Python there imports it, so that it does nothing until then. Python 3.8 and later.
"""

import os
import sys


class GpumonFinder:
    """A finder that finds no module.

    Args:
        path: The module that is run when torch is imported; it may have been removed.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Run the module once, unless gpumon watch has done so."""
        if name == "torch" and self._path:
            path, self._path = self._path, ""
            names = [type(finder).__name__ for finder in sys.meta_path]
            if "_TorchImportObserver" not in names and os.access(path, os.R_OK):
                from importlib.util import module_from_spec, spec_from_file_location

                spec = spec_from_file_location("_gpumon_site", path)
                spec.loader.exec_module(module_from_spec(spec))  # type: ignore[union-attr, arg-type] # a file has both


def install(uid: int, path: str) -> None:
    """Wait for the import, in the programs of a user; a line of a .pth file may run twice."""
    is_wanted = os.getuid() == uid and os.environ.get("GPUMON_PROBE") != "0" and sys.version_info >= (3, 8)
    if is_wanted and not isinstance(sys.meta_path[0], GpumonFinder):
        sys.meta_path.insert(0, GpumonFinder(path))
