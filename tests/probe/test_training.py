"""What the probe sees of a training run on the CPU, with the real torch, and that the program sees nothing of it."""

import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from gpumon.probe.agent.instrument import InstrumentedFunction
from gpumon.probe.agent.training import BackwardCounter, GraphReplay, Training
from tests.probe.children import Probe, complaints, connected, environment, sockets, waited
from tests.workloads.conftest import TORCH_PYTHON, needs_torch

pytestmark = [needs_torch, pytest.mark.timeout(300)]
SITE = Path(__file__).parents[2] / "gpumon" / "probe" / "site"
PATIENCE = 60.0
MODEL = """
import gc, os, sys, time, traceback, warnings
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
class Numbers(Dataset):
    seconds = 0.0
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        time.sleep(self.seconds)
        return torch.randn(8)
def step(batch=None):
    loss = model(torch.randn(4, 8) if batch is None else batch).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
def threads():
    return len(os.listdir("/proc/self/task"))
def ready():
    print("ready", flush=True)
    sys.stdin.readline()
"""


def start(folder: Path, code: str) -> "subprocess.Popen[str]":
    """A program with torch and the probe."""
    return subprocess.Popen(
        [TORCH_PYTHON or sys.executable, "-c", MODEL + textwrap.dedent(code)],
        env={**environment(folder), "PYTHONPATH": str(SITE)},
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


DRIVER = """
import os, runpy, sys, traceback
{imports}
for script in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        for number, kind in ((1, "out"), (2, "err")):
            os.dup2(os.open(script + "." + kind, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.argv = [script]
        try:
            runpy.run_path(script, run_name="__main__")
        finally:
            if sys.exc_info()[0]:
                traceback.print_exc()
            sys.modules.get("_gpumon_probe_agent", sys).__dict__.get("stop", int)()
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(sys.exc_info()[0] is not None)
    with open(script + ".status", "w") as file:
        file.write(str(os.waitpid(child, 0)[1]))
"""


def outputs(folder: Path, programs: dict[str, str], watched: str = "1") -> dict[str, tuple[str, str, str]]:
    """Exit status, standard output and standard error of programs, in children of one process that imports torch."""
    scripts = {name: folder / f"{number}.py" for number, name in enumerate(programs)}
    for name, script in scripts.items():
        script.write_text(MODEL + textwrap.dedent(programs[name]))
    imports = "\n".join(line for line in MODEL.splitlines() if line.startswith(("import", "from", "warnings")))
    subprocess.run(
        [TORCH_PYTHON or sys.executable, "-c", DRIVER.format(imports=imports), *map(str, scripts.values())],
        env={**environment(folder, GPUMON_PROBE=watched), "PYTHONPATH": str(SITE)},
        cwd=folder,
        check=True,
        timeout=300,
    )
    return {
        name: (_read(script, "status"), _read(script, "out"), _read(script, "err")) for name, script in scripts.items()
    }


def _read(script: Path, kind: str) -> str:
    """What a program wrote, without addresses of objects."""
    return re.sub(r" at 0x[0-9a-f]+", "", Path(f"{script}.{kind}").read_text())


def training(probe: Probe, steps_count: int = 1) -> dict[str, Any]:
    """The field of the first statistics with a number of steps."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        progress = probe.until("statistics")["training"]
        if progress is not None and progress["steps_count"] >= steps_count:
            return dict(progress)
    raise AssertionError("no steps")


STARTS = {
    "step": "step()",
    "loader": "next(iter(DataLoader(Numbers())))",
    "process group": """
    torch.distributed.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=0, world_size=1)
    """,
    "process group with a store": """
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    """,
}


@pytest.mark.long
@pytest.mark.parametrize("doing", STARTS)
def test_it_starts_where_a_program_trains_on_the_cpu(tmp_path: Path, doing: str) -> None:
    begun = textwrap.dedent(STARTS[doing])
    code = f"print(threads(), '_gpumon_probe_agent' in sys.modules)\nready()\n{begun}\nready()\n"
    with connected(start(tmp_path, code), tmp_path) as program:
        assert program.hear() == "1 False"
        assert (program.hear(), sockets(tmp_path)) == ("ready", [])
        program.say("")
        assert program.hear() == "ready"
        probe = program.probe()
        message = probe.until("statistics")
        assert (message["state"], message["devices"], message["reason"]) == ("cpu_only", [], "")
        assert not probe.ask("summary")["ok"]
        assert program.end() == (0, "", "")
    assert (sockets(tmp_path), complaints(tmp_path)) == ([], "")


def test_steps_and_waits_for_data_are_measured(tmp_path: Path) -> None:
    code = """
    Numbers.seconds = 0.005
    step()
    print("ready", flush=True)
    while True:
        for batch in DataLoader(Numbers(), batch_size=4):
            step(batch)
            time.sleep(0.02)
    """
    with connected(start(tmp_path, code), tmp_path) as program:
        assert program.hear() == "ready"
        probe = program.probe()
        probe.send({"ask": "pace", "interval_seconds": 0.2})
        progress = training(probe, 30)
        assert abs(progress["steps_count"] - progress["batches_count"]) <= 2
        assert 0.04 <= progress["step_seconds"] < 2.0
        assert 0.02 <= progress["data_seconds"] < progress["step_seconds"]
        assert 0.0 <= progress["collection_seconds"] < 0.5 * progress["step_seconds"]
        assert abs(time.monotonic() - progress["last_step_monotonic"]) < 5


@pytest.mark.long
def test_a_wait_for_data_that_lasts_is_reported_while_it_lasts(tmp_path: Path) -> None:
    code = """
    step(next(iter(DataLoader(Numbers()))))
    Numbers.seconds = 30
    ready()
    next(iter(DataLoader(Numbers())))
    """
    with connected(start(tmp_path, code), tmp_path) as program:
        program.hear()
        probe = program.probe()
        waited(lambda: probe.until("statistics")["training"] is not None)
        began = time.monotonic()
        program.say("")
        since = waited(lambda: training(probe)["waiting_for_data_since_monotonic"])
        assert began <= since <= time.monotonic()


@pytest.mark.long
def test_garbage_collections_of_the_training_thread_are_measured(tmp_path: Path) -> None:
    code = """
    gc.freeze()
    kept = [[] for _ in range(200_000)]
    step()
    print("ready", flush=True)
    while True:
        gc.collect()
        step()
    """
    with connected(start(tmp_path, code), tmp_path) as program:
        assert program.hear() == "ready"
        progress = training(program.probe(), 100)
        assert 0.3 * progress["step_seconds"] < progress["collection_seconds"] < 2 * progress["step_seconds"]


COUNTS = {
    "only the optimizer with the most steps": (
        """
        other = torch.optim.Adam(model.parameters())
        for _ in range(20):
            step(); step(); step()
            other.step()
        """,
        60,
    ),
    "a second training run in the process": (
        """
        for _ in range(30): step()
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(50): step()
        """,
        30 + 50 - 8,
    ),
    "an optimizer of each parameter": (
        """
        several = [torch.optim.SGD([item], lr=0.01) for item in model.parameters()] * 1
        for _ in range(20):
            model(torch.randn(4, 8)).sum().backward()
            for item in several: item.step()
        """,
        20,
    ),
    "steps that GradScaler leaves out": (
        """
        scaler = torch.amp.GradScaler("cpu")
        for number in range(20):
            scaler.scale(model(torch.full((4, 8), float("inf") if number % 2 else 1.0)).sum()).backward()
            scaler.step(optimizer); scaler.update(); optimizer.zero_grad()
        """,
        20,
    ),
    "gradients of many batches": (
        """
        for _ in range(5):
            for _ in range(40): model(torch.randn(4, 8)).sum().backward()
            optimizer.step()
        """,
        5,
    ),
    "backward passes without an optimizer": (
        """
        for _ in range(100):
            inputs = torch.randn(4, 8, requires_grad=True)
            torch.utils.checkpoint.checkpoint(model, inputs, use_reentrant=True).sum().backward()
        """,
        36,
    ),
}


@pytest.mark.long
def test_what_counts_as_a_step(tmp_path: Path) -> None:
    begin = "next(iter(DataLoader(Numbers())))\ntime.sleep(0.6)\n"
    end = "print(sys.modules['_gpumon_probe_agent'].startup._sampler.training.progress()['steps_count'])\n"
    programs = {what: begin + textwrap.dedent(code) + end for what, (code, _) in COUNTS.items()}
    counted = {what: (err, int(out or -1)) for what, (_, out, err) in outputs(tmp_path, programs).items()}
    assert counted == {what: ("", expected) for what, (_, expected) in COUNTS.items()}


BROKEN = """
class Broken(Numbers):
    def __getitem__(self, index):
        if index == 30:
            raise ValueError("broken")
        return super().__getitem__(index)
Broken.seconds = 0.02
step()
for batch in DataLoader(Broken(){}):
    step(batch)
"""
INVISIBLE = {
    "random numbers and results": """
    for batch in DataLoader(Numbers(), batch_size=4, shuffle=True):
        step(batch)
    print(model.weight.sum().item(), torch.randint(10**9, (1,)).item())
    """,
    "exception in a dataset": BROKEN.format(""),
    "exception in a worker": BROKEN.format(", num_workers=1"),
    "exception in a backward pass": """
    step()
    time.sleep(1)
    total = model(torch.randn(4, 8)).sum()
    total.backward()
    total.backward()
    """,
    "place of a warning": """
    class Endless(IterableDataset):
        def __len__(self):
            return 3
        def __iter__(self):
            return iter(range(5))
    step()
    time.sleep(1)
    loader = DataLoader(Endless(), batch_size=None, pin_memory=True)
    len(loader)
    for number in loader:
        pass
    """,
    "signatures, threads and processes": """
    import inspect, pickle, threading
    from torch.utils.data import dataloader
    from torch.distributed import distributed_c10d
    step()
    time.sleep(1)
    for function in (dataloader._BaseDataLoaderIter.__next__, torch.amp.GradScaler.update, torch.autograd.backward,
                     dataloader._get_distributed_settings, distributed_c10d.rendezvous, torch.optim.SGD.step):
        print(function.__module__, function.__qualname__, inspect.signature(function), inspect.getsource(function))
    print(threading.active_count(), len(threading.enumerate()), gc.isenabled())
    print(len(pickle.dumps(optimizer)), len(pickle.dumps(DataLoader(Numbers()))))
    """,
    "warnings are errors, with forks": """
    warnings.simplefilter("error")
    step()
    for epoch in range(3):
        for batch in DataLoader(Numbers(), batch_size=100, num_workers=1):
            step(batch)
    child = os.fork()
    if child == 0:
        os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """,
    "torch.compile": """
    import logging, torch._dynamo
    from torch._dynamo.utils import counters
    logging.disable(logging.CRITICAL)
    step()
    time.sleep(1)
    forward = torch.compile(model, backend="eager")
    update = torch.compile(optimizer.step, backend="eager")
    @torch.compile(backend="eager")
    def whole():
        step()
    for _ in range(4):
        forward(torch.randn(4, 8)).sum().backward()
        update()
        whole()
        step()
    print({name: dict(counters[name]) for name in ("stats", "graph_break", "recompiles")})
    from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list
    for name in [name for name in sys.modules if name.startswith("_gpumon_probe_agent")]:
        for owner in list(vars(sys.modules[name]).values()):
            for function in (owner, *getattr(owner, "__dict__", {}).values()):
                if hasattr(function, "__code__") and _debug_get_cache_entry_list(function.__code__):
                    print("compiled", function)
    """,
    "an interrupt in a loop": """
    import _thread, signal
    class Stop(Exception):
        pass
    def stop(*_):
        raise Stop
    signal.signal(signal.SIGALRM, stop)
    stops = 0
    for _ in range(100):
        signal.setitimer(signal.ITIMER_REAL, 0.002)
        try:
            for batch in DataLoader(Numbers(), batch_size=100):
                step(batch)
                gc.collect(0)
                while True:
                    model(batch)
        except Stop:
            stops += 1
    print(stops)
    """,
}


@pytest.mark.long
def test_programs_behave_as_without_it(tmp_path: Path) -> None:
    assert outputs(tmp_path, INVISIBLE) == outputs(tmp_path, INVISIBLE, "0")
    assert complaints(tmp_path) == ""


class Base:
    def replay(self) -> str:
        return "base"


class Graph(Base):
    def replay(self) -> str:
        """Like `torch.cuda.CUDAGraph.replay`, which calls C++ code through ``super()``."""
        return f"graph and {super().replay()}"


def test_a_method_that_calls_super_can_be_observed() -> None:
    training = Training()
    method: Any = Graph.replay
    function = InstrumentedFunction(method, GraphReplay(training, BackwardCounter(training)))
    assert [Graph().replay() for _ in range(200)][-1] == "graph and base"
    function.restore()
    Graph().replay()
    progress = training.progress()
    assert progress is not None
    assert progress["steps_count"] == 200 - 65 + 1


def test_graphs_that_are_a_part_of_a_step_are_not_steps() -> None:
    training = Training()
    backwards = BackwardCounter(training)
    replay = GraphReplay(training, backwards)
    for _ in range(100):
        with replay:
            """The forward pass."""
        with backwards, replay:
            """The backward pass."""
    progress = training.progress()
    assert progress is not None
    assert progress["steps_count"] == 1 + 100 - 64, "one for each backward pass, and one before the first of these"
