"""Starts a workload by its path, with an interpreter in which gpumon is not installed.

    python _run.py FILE --events FD [--control FD] [--device cuda:0] [--parameters JSON]
    python _run.py --describe FILE...

The folder of this file is taken off ``sys.path``: a workload called ``random.py`` must not stand in for Python's own.
"""

import importlib.util
import sys
from pathlib import Path


def _provide_kit() -> None:
    folder = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != folder]
    spec = importlib.util.spec_from_file_location(
        "_kit", folder / "_kit" / "__init__.py", submodule_search_locations=[str(folder / "_kit")]
    )
    assert spec is not None
    assert spec.loader is not None
    kit = sys.modules["_kit"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kit)


if __name__ == "__main__":
    _provide_kit()
    from _kit.child import main

    sys.exit(main(sys.argv[1:]))
