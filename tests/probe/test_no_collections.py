"""Reading the frames of a thread that runs, while garbage collections run Python code."""

import gc
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from gpumon.probe.agent.no_collections import NoCollections, after_fork

PROGRAM = """
import gc, random, sys, threading, time
from gpumon.probe.agent.no_collections import NoCollections
from gpumon.probe.agent.stacks import stack_of

def callback(phase, info):
    for _ in range(50):
        pass

sys.setswitchinterval(1e-6)
gc.callbacks.append(callback)
gc.set_threshold(50, 5, 5)
kept = [[number] for number in range(2000)]
functions = []
for size in range(1, 12):  # frames of different sizes take the place of each other
    names = ", ".join(f"v{number}" for number in range(size)) + ","
    body = f"{names} = [((number,), [number]) for number in range({size})]"
    last = f"return [depth] if depth == 0 else functions[(7 * depth + {size}) % 11](depth - 1)"
    exec(f"def call(depth):\\n    {body}\\n    {last}")
    functions.append(call)
main, samples, until = threading.get_ident(), [], time.monotonic() + 2.5

def sample():
    while time.monotonic() < until:
        with NoCollections():
            samples.append(len(stack_of(sys._current_frames().get(main))))
        time.sleep(0.00005)

thread = threading.Thread(target=sample)
thread.start()
while time.monotonic() < until:
    random.choice(functions)(random.randrange(1, 20))
thread.join()  # within it, collections are off
assert gc.isenabled()
print(len(samples))
sys.stdout.flush()
import os
os._exit(0)
"""


def test_frames_of_a_thread_that_runs_are_read_safely() -> None:
    """Without it, Python 3.11 crashes here within a second."""
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM)]
    folder = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=folder)

    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 100


@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_setting_of_the_program_is_kept(is_enabled: bool) -> None:
    gc.enable() if is_enabled else gc.disable()
    try:
        with NoCollections():
            assert not (gc.isenabled() and sys.version_info[:2] == (3, 11))
        assert gc.isenabled() is is_enabled
    finally:
        gc.enable()


def test_a_child_that_was_forked_meanwhile_collects_garbage() -> None:
    with NoCollections():
        after_fork()
        assert gc.isenabled()
