"""The probe's agent inside a process: it reports, it answers, and it never disturbs the program."""

import contextlib
import gzip
import itertools
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.probe.agent.folders import make_private_folder
from gpumon.probe.agent.identity import process_facts
from gpumon.probe.agent.messages import MAX_INTERVAL, MIN_INTERVAL, SCHEMA
from gpumon.probe.protocol import MAX_PACE, MIN_PACE
from gpumon.probe.protocol import SCHEMA as READ_SCHEMA
from tests.probe.children import (
    FAKE_TORCH,
    PATIENCE,
    Probe,
    complaints,
    connected,
    environment,
    python2,
    pythons,
    running,
    sockets,
    waited,
)

GIB = 1 << 30
REPOSITORY = Path(__file__).parents[2]
SITE = REPOSITORY / "gpumon" / "probe" / "site"
PYTHON2 = python2()
HOLDING = f"""
import sys, torch
first = torch.cuda.allocate(1, {GIB})
second = torch.cuda.allocate(1, {2 * GIB})
second["used"] = False
print("ready", flush=True)
sys.stdin.readline()
print("done")
"""
OUT_OF_MEMORY = f"""
import sys, torch
def step():
    torch.cuda.allocate(0, {100 * GIB})
torch.cuda.allocate(0, {GIB})
for number in range(int(sys.argv[1]) if len(sys.argv) > 1 else 1):
    try:
        step()
    except torch.OutOfMemoryError as error:
        print(error, flush=True)
sys.stdin.readline()
"""


def read_file(path: Path) -> dict[str, object]:
    message: dict[str, object] = json.loads(gzip.decompress(path.read_bytes()))
    return message


def run(
    folder: Path, code: str, *options: str, paths: tuple[Path, ...] = (SITE,), python: str = sys.executable, **more: str
) -> list[str]:
    """The lines that a program prints, which prints nothing else and ends as it would."""
    path = os.pathsep.join(map(str, (*paths, FAKE_TORCH, REPOSITORY)))
    own = {**environment(folder), "PYTHONPATH": path, **more}
    command = [python, *options, "-c", code]
    done = subprocess.run(command, env=own, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize("python", pythons())
def test_statistics_of_the_allocator(tmp_path: Path, python: str) -> None:
    with running(tmp_path, HOLDING, python=python, RANK="3", LOCAL_RANK="1", WORLD_SIZE="8") as program:
        assert program.hear() == "ready"
        probe = program.probe()
        hello, message = probe.line(), probe.line()
        assert (hello["schema"], hello["event"], hello["pid"]) == (1, "hello", program.process.pid)
        assert (hello["rank"], hello["local_rank"], hello["world_size"]) == (3, 1, 8)
        assert message["event"] == "statistics"
        assert (message["state"], message["backend"], message["torch_version"]) == ("live", "native", "2.11.0+cu130")
        (device,) = message["devices"]
        assert device["ordinal"] == 1, "only where there is a context"
        assert device["uuid"] == "GPU-00000001-0000-0000-0000-000000000000"
        assert (device["allocated_bytes"], device["reserved_bytes"]) == (GIB, 3 * GIB)
        assert (device["allocated_peak_bytes"], device["segments_count"]) == (3 * GIB, 2)
        assert message["pinned"] == {"allocated_bytes": 4096, "active_bytes": 1024}
        assert probe.line()["event"] == "statistics", "it keeps reporting"
        assert program.end() == (0, "done\n", "")
    assert sockets(tmp_path) == []
    assert complaints(tmp_path) == ""


def test_requests_are_answered(tmp_path: Path) -> None:
    with running(tmp_path, HOLDING) as program:
        probe = program.probe()
        segments = probe.ask("segments")
        assert [(segment["ordinal"], segment["size_bytes"], segment["blocks"]) for segment in segments["segments"]] == [
            (1, GIB, [[GIB, GIB, 0]]),
            (1, 2 * GIB, [[2 * GIB, 2 * GIB, 2]]),
        ]
        assert not segments["cut"]
        assert "device ID 1" in probe.ask("summary", ordinal=1)["text"]
        emptied = probe.ask("empty_cache")
        assert [item["reserved_bytes"] for item in (*emptied["before"], *emptied["after"])] == [3 * GIB, GIB]
        assert not probe.ask("summary", ordinal="x")["ok"]
        unknown = probe.ask("os.system")
        assert (unknown["ok"], unknown["reason"]) == (False, "This probe does not know the request.")


def test_a_probe_that_rests_after_an_answer_ends_at_once(tmp_path: Path) -> None:
    code = """
import sys, torch
torch.cuda.allocate(0, 1)
sys.modules["_gpumon_probe_agent.requests"]._REST_FACTOR = 1e9
print("ready", flush=True)
sys.stdin.readline()
"""
    with running(tmp_path, code) as program:
        program.hear()
        probe = program.probe()
        assert probe.ask("stacks")["ok"]
        probe.send({"ask": "stacks", "id": 2})
        assert "in a moment" in probe.until("answer")["reason"]
        probe.send({"ask": "detach", "id": 3})
        assert probe.until("answer")["ok"]


def test_the_interval_is_as_requested_within_the_limits(tmp_path: Path) -> None:
    with running(tmp_path, HOLDING) as program:
        probe = program.probe()
        probe.send({"ask": "pace", "interval_seconds": 0.1})
        times = [probe.until("statistics")["monotonic_seconds"] for _ in range(5)][1:]
        message = probe.until("statistics")
        pauses = [after - before for before, after in itertools.pairwise(times)]
        assert min(pauses) >= 0.09
        assert max(pauses) < 5
        assert message["cost"]["seconds"] > 0
        assert message["cost"]["reads"] >= 5


def test_a_program_without_torch_or_without_cuda_has_no_thread_and_no_socket(tmp_path: Path) -> None:
    code = "import os, sys; {}; print(len(os.listdir('/proc/self/task')), len(sys.meta_path))"
    (plain,) = run(tmp_path, code.format("pass"), paths=())
    threads, finders = map(int, plain.split())
    for doing in ("pass", "import torch"):
        assert run(tmp_path, code.format(doing)) == [f"{threads} {finders + 1}"]
    assert sockets(tmp_path) == []


def test_the_users_own_sitecustomize_runs(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import sys\nsys.seen = __name__, __file__\n")
    code = "import sys; print(*sys.seen, sys.modules['sitecustomize'].__file__)"
    path = tmp_path / "own" / "sitecustomize.py"
    assert run(tmp_path, code, paths=(SITE, tmp_path / "own")) == [f"sitecustomize {path} {path}"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("python", pythons())
def test_sitecustomize_is_as_without_gpumon(tmp_path: Path, python: str) -> None:
    """It exists only if the user has one, and what that one does to the path stays."""
    code = f"import sys; print('sitecustomize' in sys.modules, sys.path[-1], sys.path.count({str(SITE)!r}))"
    command = [python, "-c", code]
    base = environment(tmp_path)
    for text in (None, "import sys; sys.path.append('/added')", "1 / 0", "import no_such_module"):
        if text is not None:
            (tmp_path / "sitecustomize.py").write_text(text)
        both = []
        for path in (f"{FAKE_TORCH}:{tmp_path}", f"{SITE}:{FAKE_TORCH}:{tmp_path}"):
            done = subprocess.run(command, env={**base, "PYTHONPATH": path}, capture_output=True, text=True, check=True)
            both.append((done.stdout.split()[:2], done.stderr))
        assert both[0] == both[1], text
        assert done.stdout.split()[2] == "1"


@pytest.mark.skipif(PYTHON2 is None, reason="no Python 2.7 on PATH")
@pytest.mark.parametrize("text", ["", "print('own')", "import no_such_module"])
def test_python_2_notices_nothing(tmp_path: Path, text: str) -> None:
    assert PYTHON2 is not None
    if text:
        (tmp_path / "sitecustomize.py").write_text(text)
    code = "import sys; print(len(sys.meta_path)); print(sys.path[1])"
    own = ["own"] if text.startswith("print") else []
    assert run(tmp_path, code, python=PYTHON2, paths=(SITE, tmp_path)) == [*own, "0", str(SITE)]


def test_watch_imports_no_module(tmp_path: Path) -> None:
    """Every start of every Python below `gpumon watch` would pay for it."""
    code = "import sys; print(*sorted(sys.modules))"
    assert run(tmp_path, code) == run(tmp_path, code, paths=(tmp_path,))


def test_started_by_the_program_it_reports_before_torch_is_imported(tmp_path: Path) -> None:
    code = """
import sys
import gpumon.probe
gpumon.probe.start()
gpumon.probe.start()
print("started", flush=True)
sys.stdin.readline()
import torch
print("imported", flush=True)
sys.stdin.readline()
torch.cuda.allocate(0, 1)
sys.stdin.readline()
gpumon.probe.stop()
sys.stdin.readline()
"""
    env = {**environment(tmp_path), "PYTHONPATH": f"{REPOSITORY}:{FAKE_TORCH}"}
    command = [sys.executable, "-c", code]
    process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with connected(process, tmp_path) as program:
        probe = program.probe()
        assert probe.until("statistics")["state"] == "waiting_for_torch"
        assert len(sockets(tmp_path)) == 1
        program.say("")
        assert [waited(lambda: probe.until("statistics")["state"] == "waiting_for_cuda")]
        program.say("")
        assert [waited(lambda: probe.until("statistics")["state"] == "live")]
        probe.close()
        program.say("")
        waited(lambda: not sockets(tmp_path))
        assert process.poll() is None


@pytest.mark.sampled(2)
@pytest.mark.parametrize("python", pythons())
def test_out_of_memory_writes_a_file_before_the_traceback(tmp_path: Path, python: str) -> None:
    with running(tmp_path, OUT_OF_MEMORY, python=python) as program:
        assert program.hear() == f"CUDA out of memory. Tried to allocate {100 * GIB} bytes."
        (path,) = (tmp_path / "state" / "gpumon" / "oom").glob("oom-*.json.gz")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        message = read_file(path)
        assert (message["schema"], message["kind"], message["backend"]) == (1, "gpumon-oom", "native")
        assert message["request"] == {"bytes": 100 * GIB, "limit_bytes": 80 * GIB, "free_bytes": 79 * GIB}
        assert message["device"] == {
            "ordinal": 0,
            "total_bytes": 80 * GIB,
            "uuid": "GPU-00000000-0000-0000-0000-000000000000",
            "name": "NVIDIA Fake",
        }
        stack = message["stack"]
        assert isinstance(stack, list)
        assert [frame[2] for frame in stack] == ["allocate", "step", "<module>"]
        assert isinstance(message["segments"], list)
        assert len(message["segments"]) == 1
        statistics = program.probe().until("statistics")
        assert statistics["oom_files"] == [str(path)]
        assert program.end()[0] == 0


def test_repeated_out_of_memory_writes_few_files(tmp_path: Path) -> None:
    code = OUT_OF_MEMORY.replace("int(sys.argv[1]) if len(sys.argv) > 1 else 1", "50")
    with running(tmp_path, code) as program:
        assert [program.hear() for _ in range(50)]
        assert len(list((tmp_path / "state" / "gpumon" / "oom").iterdir())) == 3
        assert program.end()[::2] == (0, "")


@pytest.mark.parametrize("state", ["/proc/none", "/dev/null"])
def test_without_a_writable_home_the_file_is_next_to_the_sockets(tmp_path: Path, state: str) -> None:
    with running(tmp_path, OUT_OF_MEMORY, XDG_STATE_HOME=state) as program:
        program.hear()
        assert len(list((tmp_path / "sockets" / "oom").glob("oom-*.json.gz"))) == 1


def test_a_full_disk_leaves_no_file_and_the_program_gets_its_own_error(tmp_path: Path) -> None:
    code = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n" + OUT_OF_MEMORY
    with running(tmp_path, code) as program:
        assert program.hear().startswith("CUDA out of memory.")
        assert program.end() == (0, "", "")
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "complaints"]


def test_old_files_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "gpumon" / "oom"
    folder.mkdir(parents=True)
    for number in range(12):
        (folder / f"oom-{1_700_000_000 + number}-1-1.json.gz").write_bytes(b"")
    (folder / "mine.txt").write_text("mine")
    with running(tmp_path, OUT_OF_MEMORY) as program:
        program.hear()
    left = sorted(path.name for path in folder.iterdir())
    assert len(left) == 11
    assert left[0] == "mine.txt"
    assert left[1] == "oom-1700000003-1-1.json.gz"


def test_a_forked_child_has_its_own_probe(tmp_path: Path) -> None:
    code = """
import os, sys, torch
print("ready", flush=True)
sys.stdin.readline()
child = os.fork()
if child == 0:
    print("child", os.getpid(), flush=True)
    torch.cuda.allocate(0, 1)
    import time; time.sleep(60)
torch.cuda.allocate(1, 1)
print("parent", os.getpid(), flush=True)
sys.stdin.readline()
os.kill(child, 9); os.waitpid(child, 0)
"""
    with running(tmp_path, code) as program:
        program.hear()
        program.say("")
        pids = dict(program.hear().split() for _ in range(2))
        assert int(pids["parent"]) == program.process.pid
        for who, ordinal in (("parent", 1), ("child", 0)):
            probe = program.probe(int(pids[who]))
            assert probe.until("hello")["pid"] == int(pids[who])
            assert [device["ordinal"] for device in probe.until("statistics")["devices"]] == [ordinal]
        program.say("")
        assert program.end()[0] == 0


def test_a_fork_after_cuda_leaves_the_parents_socket_alone(tmp_path: Path) -> None:
    code = """
import os, sys, torch
torch.cuda.allocate(0, 1)
print("ready", flush=True)
sys.stdin.readline()
child = os.fork()
if child == 0:
    sys.exit(0)
os.waitpid(child, 0)
sys.modules["_gpumon_probe_agent"].startup._sampler.training.on_data_wait()  # as the next batch, for 3.13
print("over", flush=True)
sys.stdin.readline()
"""
    with running(tmp_path, code) as program:
        program.hear()
        before = program.probe()
        program.say("")
        assert program.hear() == "over"
        assert before.until("statistics")["state"] == "live"
        assert program.probe().until("hello")["pid"] == program.process.pid


@pytest.mark.sampled(2)
@pytest.mark.parametrize("python", pythons())
def test_python_warns_of_no_thread_when_the_program_forks(tmp_path: Path, python: str) -> None:
    code = """
import os, sys, time, torch, warnings
warnings.simplefilter("always", DeprecationWarning)
torch.cuda.allocate(0, 1)
print("ready", flush=True)
sys.stdin.readline()
for number in range(20):
    child = os.fork()
    if child == 0:
        os._exit(len(os.listdir("/proc/self/task")))
    assert os.waitpid(child, 0)[1] == 1 << 8
    time.sleep(0.01 * (number % 3))
print(len(os.listdir("/proc/self/task")), flush=True)
sys.stdin.readline()
started = time.monotonic()
for _ in range(5):
    if os.fork() == 0:
        os._exit(0)
sys.modules["_gpumon_probe_agent"].stop()
print(time.monotonic() - started < 0.4, flush=True)
"""
    with running(tmp_path, code, python=python) as program:
        assert program.hear() == "ready"
        probe = program.probe()
        probe.until("statistics")
        program.say("")
        assert program.hear() == "2"
        assert probe.ask("summary", ordinal=0)["ok"], "it serves the same clients after the forks"
        assert len(sockets(tmp_path)) == 1
        assert program.end() == (0, "True\n", "")
    assert (sockets(tmp_path), complaints(tmp_path)) == ([], "")


def test_spawned_workers_have_their_own_probes(tmp_path: Path) -> None:
    script = tmp_path / "spawning.py"
    script.write_text("""
import multiprocessing, os, sys
def work(rank):
    import time, torch
    torch.cuda.allocate(rank, 1)
    time.sleep(60)
if __name__ == "__main__":
    workers = [multiprocessing.get_context("spawn").Process(target=work, args=(rank,)) for rank in range(2)]
    for each in workers:
        each.start()
    print(*(each.pid for each in workers), flush=True)
    sys.stdin.readline()
    for each in workers:
        each.kill()
""")
    command, env = [sys.executable, str(script)], environment(tmp_path)
    process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with connected(process, tmp_path) as program:
        for ordinal, pid in enumerate(program.hear().split()):
            probe = program.probe(int(pid))
            assert [device["ordinal"] for device in probe.until("statistics")["devices"]] == [ordinal]
        program.say("")
        assert process.wait(PATIENCE) == 0


def test_an_exec_ends_the_probe_and_the_new_program_has_its_own(tmp_path: Path) -> None:
    code = f"""
import os, sys, torch
torch.cuda.allocate(0, 1)
print("first", flush=True)
sys.stdin.readline()
os.execv(sys.executable, [sys.executable, "-c", {HOLDING!r}])
"""
    with running(tmp_path, code) as program:
        program.hear()
        first = program.socket()
        program.say("")
        assert program.hear() == "ready"
        second = waited(lambda: next((socket for socket in sockets(tmp_path) if socket != first), None))
        with socket.socket(socket.AF_UNIX) as stale, pytest.raises(ConnectionRefusedError):
            stale.connect(str(first))
        assert second.name.startswith(f"{program.process.pid}-")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_are_the_programs_own(tmp_path: Path, number: signal.Signals) -> None:
    code = f"""
import signal, sys, torch
signal.pthread_sigmask(signal.SIG_BLOCK, [{int(number)}])
torch.cuda.allocate(0, 1)
print("ready", flush=True)
print(int(signal.sigwait([{int(number)}])), flush=True)
"""
    with running(tmp_path, code) as program:
        assert program.hear() == "ready"
        program.probe().until("statistics")
        program.process.send_signal(number)
        assert program.hear() == str(int(number)), "a thread that takes signals would have ended the program"
        assert program.end() == (0, "", "")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("python", pythons())
def test_a_thread_of_the_probe_never_receives_a_signal(tmp_path: Path, python: str) -> None:
    code = """
import _thread, os, signal, sys, torch
start_new_thread, masks = _thread.start_new_thread, []
def observed(function, arguments):
    def run(*arguments):
        masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, []))
        function(*arguments)
    return start_new_thread(run, arguments)
_thread.start_new_thread = observed
before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
torch.cuda.allocate(0, 1)
print(signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]) == before | {signal.SIGUSR2})
os.kill(os.getpid(), signal.SIGUSR1)
print(signal.sigwait([signal.SIGUSR1]) == signal.SIGUSR1)
sys.modules["_gpumon_probe_agent"].stop()
print(len(masks), signal.valid_signals() - masks[0] <= {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL,
    signal.SIGKILL, signal.SIGSTOP})
"""
    with running(tmp_path, code, python=python) as program:
        assert program.end() == (0, "True\nTrue\n1 True\n", "")


def test_an_exception_of_a_signal_handler_leaves_the_mask_as_it_was(tmp_path: Path) -> None:
    code = """
import _thread, os, signal, torch
def interrupted(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGUSR1, interrupted)
start_new_thread = _thread.start_new_thread
def signalled(*call):
    os.kill(os.getpid(), signal.SIGUSR1)
    return start_new_thread(*call)
_thread.start_new_thread = signalled
try:
    torch.cuda.allocate(0, 1)
except KeyboardInterrupt:
    print("interrupted")
torch.cuda.allocate(0, 1)
print(signal.pthread_sigmask(signal.SIG_BLOCK, []), len(os.listdir("/proc/self/task")))
"""
    assert run(tmp_path, code) == ["interrupted", "set() 2"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("python", pythons())
def test_the_probe_ends_silently_without_any_free_descriptor(tmp_path: Path, python: str) -> None:
    code = f"""
import resource, sys, torch
from resource import RLIMIT_NOFILE
torch.cuda.allocate(0, 1)
resource.setrlimit(RLIMIT_NOFILE, (3, 3))
sys.modules["_gpumon_probe_agent"].stop()
try:
    torch.cuda.allocate(0, {100 * GIB})
except torch.OutOfMemoryError:
    print("out of memory")
"""
    with running(tmp_path, code, python=python) as program:
        assert program.end() == (0, "out of memory\n", "")


HOSTILE = {
    "garbage": b"\xff\xfe\x00garbage\n",
    "nested": b"[" * 4000 + b"\n",
    "endless": b"x" * 100_000,
    "pace of nothing": b'{"ask":"pace","interval_seconds":NaN}\n{"ask":"pace","interval_seconds":-1e999}\n',
    "pace too large for a float": b'{"ask":"pace","interval_seconds":1' + b"0" * 400 + b"}\n",
    "wrong types": b'{"ask":["pace"],"id":{"a":[1]}}\n{"ask":"pace","interval_seconds":"soon"}\n{"ask":null}\n[]\n7\n',
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_client_does_not_affect_others(tmp_path: Path, what: str) -> None:
    with running(tmp_path, HOLDING) as program:
        program.hear()
        hostile, other = program.probe(), program.probe()
        with contextlib.suppress(OSError):  # it hangs up in the middle
            hostile.connection.sendall(HOSTILE[what])
        assert other.until("statistics")["state"] == "live"
        assert other.ask("summary", ordinal=1)["ok"]
        assert program.end() == (0, "done\n", "")


def test_a_client_that_does_not_read_does_not_block_others(tmp_path: Path) -> None:
    with running(tmp_path, HOLDING) as program:
        deaf, other = program.probe(), program.probe()
        deaf.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        for probe in (deaf, other):
            probe.send({"ask": "pace", "interval_seconds": 0.1})
        for number in range(200):
            deaf.send({"ask": "summary", "id": number, "ordinal": 1})
        assert len([other.until("statistics") for _ in range(6)]) == 6


def test_the_number_of_clients_is_limited(tmp_path: Path) -> None:
    with running(tmp_path, HOLDING) as program:
        program.hear()
        listening = [program.probe() for _ in range(8)]
        assert all(item.until("hello") for item in listening)
        with pytest.raises((AssertionError, OSError)):
            program.probe().line()
        listening[0].close()
        waited(lambda: _answers(program.socket()))


def _answers(path: Path) -> bool:
    probe = Probe(path)
    try:
        return bool(probe.line()["event"] == "hello")
    except (AssertionError, OSError):
        return False
    finally:
        probe.close()


def test_a_torch_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    code = f"""
import sys, torch
def broken(ordinal):
    raise RuntimeError("not this one")
torch._C._cuda_memoryStats = broken
{HOLDING}"""
    with running(tmp_path, code) as program:
        message = program.probe().until("statistics")
        assert (message["state"], message["reason"]) == ("failed", "RuntimeError: not this one")
        assert program.end()[0] == 0


def test_statistics_with_cuda_malloc_async(tmp_path: Path) -> None:
    code = f"""
import torch
def no_observers(observer):
    raise RuntimeError("cudaMallocAsync does not yet support attachOutOfMemoryObserver.")
torch._C._cuda_attach_out_of_memory_observer = no_observers
{HOLDING}"""
    with running(tmp_path, code, FAKE_TORCH_BACKEND="cudaMallocAsync") as program:
        message = program.probe().until("statistics")
        (device,) = message["devices"]
        assert (message["state"], message["backend"]) == ("live", "cudaMallocAsync")
        assert (device["allocated_bytes"], device["active_bytes"], device["ooms_count"]) == (GIB, None, None)


@pytest.mark.parametrize("setting", ["expandable_segments:True", "max_split_size_mb:64,expandable_segments: True"])
def test_expandable_segments_have_no_split_statistics(tmp_path: Path, setting: str) -> None:
    with running(tmp_path, HOLDING, PYTORCH_CUDA_ALLOC_CONF=setting) as program:
        probe = program.probe()
        assert probe.until("hello")["settings"] == {"PYTORCH_CUDA_ALLOC_CONF": setting}
        message = probe.until("statistics")
        assert message["expandable_segments"] is True
        assert message["devices"][0]["inactive_split_bytes"] is None


def test_torch_without_cuda_is_reported(tmp_path: Path) -> None:
    code = """
import sys, torch
del torch._C._cuda_memoryStats
sys.path.insert(0, sys.argv[1])
import gpumon.probe
gpumon.probe.start()
sys.stdin.readline()
"""
    with running(tmp_path, code.replace("sys.argv[1]", repr(str(REPOSITORY)))) as program:
        assert program.probe().until("statistics")["state"] == "cpu_only"


def test_the_environment_disables_the_probe(tmp_path: Path) -> None:
    with running(tmp_path, HOLDING, GPUMON_PROBE="0") as program:
        program.hear()
        assert program.end()[0] == 0
    assert not (tmp_path / "sockets").exists()


def test_a_removed_socket_is_created_again(tmp_path: Path) -> None:
    soon = 'sys.modules["_gpumon_probe_agent"].startup._sampler._next_socket_check = 0.0\nsys.stdin.readline()\n'
    with running(tmp_path, HOLDING + soon) as program:
        program.hear()
        path = program.socket()
        path.unlink()
        program.say("")
        assert program.socket() != path


# A guest


def test_two_gpumon_may_watch_one_program(tmp_path: Path) -> None:
    other = tmp_path / "other" / "probe"
    shutil.copytree(SITE.parent, other)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import sys\nsys.seen = True\n")
    code = """
import sys, torch
torch.cuda.allocate(0, 1)
print(sys.seen, len(torch.cuda._observers))
"""
    assert run(tmp_path, code, paths=(SITE, other / "site", tmp_path / "own")) == ["True 1"]


def test_no_import_finder_of_the_program_is_skipped(tmp_path: Path) -> None:
    code = """
import sys
class Finder:
    seen = []
    def find_spec(self, name, path=None, target=None):
        self.seen.append(name)
place = [type(each).__name__ for each in sys.meta_path].index("_TorchImportObserver")
sys.meta_path.insert(place + 1, Finder())
import torch
print(*[name for name in Finder.seen if name.startswith("torch")])
"""
    assert run(tmp_path, code) == ["torch torch.cuda torch.cuda.memory torch.autograd"]


@pytest.mark.parametrize("paths", [(SITE,), ()])
def test_started_twice_there_is_one_probe(tmp_path: Path, paths: tuple[Path, ...]) -> None:
    code = """
import time, sys
from gpumon import probe
if len(sys.argv) == 1:
    probe.start()
import torch
torch.cuda.allocate(0, 1)
time.sleep(0.7)
probe.stop()
probe.start()
time.sleep(0.7)
import os
print(len(torch.cuda._observers), len(os.listdir(os.environ["GPUMON_PROBE_DIR"])))
"""
    assert run(tmp_path, code, paths=paths) == ["1 1"]
    assert run(tmp_path, code.replace("== 1", "== 2"), paths=paths) == ["1 1"]


def test_a_stopped_probe_writes_no_file_and_does_not_start_in_children(tmp_path: Path) -> None:
    code = f"""
import os, torch
from gpumon import probe
threads = set()
for _ in range(100):
    probe.start()
    torch.cuda.allocate(0, 1)
    probe.stop()
    threads.add(len(os.listdir("/proc/self/task")))
assert threads == {{1}}, "Python counts them when the program forks"
try:
    torch.cuda.allocate(0, {100 * GIB})
except torch.OutOfMemoryError:
    print(len(torch.cuda._queued_calls), flush=True)
child = os.fork()
if child == 0:
    print(len(torch.cuda._queued_calls), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    assert len(set(run(tmp_path, code))) == 1
    assert not (tmp_path / "state").exists()


def test_without_free_descriptors_it_neither_fails_nor_spins(tmp_path: Path) -> None:
    code = """
import glob, os, resource, socket, sys, time, torch
from gpumon import probe
torch.cuda.allocate(0, 1)
names = []
while not names:
    time.sleep(0.05)
    names = glob.glob(os.environ["GPUMON_PROBE_DIR"] + "/*.sock")
client = socket.socket(socket.AF_UNIX)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
client.connect(names[0])
before = time.process_time()
time.sleep(1)
print(time.process_time() - before < 0.2)
for each in held:
    os.close(each)
print(client.recv(5))
probe.stop()
while True:
    try:
        held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        break
probe.start()
os.close(held.pop()), os.close(held.pop()), os.close(held.pop())
probe.start()
print("_gpumon_probe_pid" in vars(sys))
"""
    assert run(tmp_path, code) == ["True", "b'{\"sch'", "True"]


@pytest.mark.parametrize("umask", [0o000, 0o177, 0o777])
def test_folders_are_private_with_any_umask(tmp_path: Path, umask: int) -> None:
    code = f"""
import os, torch
os.umask({umask})
torch.cuda.allocate(0, 1)
try:
    torch.cuda.allocate(0, {100 * GIB})
except torch.OutOfMemoryError:
    pass
"""
    run(tmp_path, code, XDG_STATE_HOME=str(tmp_path / "home" / "state"))
    made = [tmp_path / "sockets", *(tmp_path / "home" / item for item in ("", "state", "state/gpumon/oom"))]
    assert {stat.S_IMODE(item.stat().st_mode) for item in made} == {0o700}


@pytest.mark.parametrize("option", ["-Xdev", "-Werror"])
def test_without_a_usable_folder_it_is_silent(tmp_path: Path, option: str) -> None:
    code = """
import gc, os, socket, time, torch
rename = os.rename
def full(*names):
    raise OSError(28, "No space left on device")
os.rename = full
torch.cuda.allocate(0, 1)
time.sleep(0.5)
gc.collect()
print(os.listdir(os.environ["GPUMON_PROBE_DIR"]))
"""
    assert run(tmp_path, code, option) == ["[]"]


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, "KeyboardInterrupt"), (signal.SIGTERM, "SystemExit")])
def test_exceptions_of_signal_handlers_reach_the_program(tmp_path: Path, number: signal.Signals, expected: str) -> None:
    code = f"""
import os, signal, sys, torch
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
torch.cuda.allocate(0, 1)
snapshot = torch.cuda.memory.memory_snapshot
def interrupted():
    os.kill(os.getpid(), {int(number)})
    return snapshot()
torch.cuda.memory.memory_snapshot = interrupted
try:
    torch.cuda.allocate(0, {100 * GIB})
except BaseException as error:
    print(type(error).__name__)
"""
    assert run(tmp_path, code) == [expected]
    assert not list(tmp_path.rglob("*.part"))


def test_a_program_that_closes_all_descriptors_keeps_its_files(tmp_path: Path) -> None:
    code = """
import os, sys, time
from gpumon import probe
probe.start()
time.sleep(0.3)
if len(sys.argv) == 2 and os.fork():
    os.wait()
    os._exit(0)
time.sleep(0.3)
os.closerange(3, 100)
files = [open(f"{os.environ['HOME']}/{number}", "w+") for number in range(6)]
before = time.process_time()
time.sleep(1)
print(time.process_time() - before < 0.1)
probe.stop()
for each in files:
    each.write("mine")
    each.close()
    print(open(each.name).read())
"""
    for more in ("2", "1"):
        said = run(tmp_path, code.replace("== 2", f"== {more}"), paths=(), HOME=str(tmp_path))
        assert said == ["True", *["mine"] * 6]


FILLED = {
    "connected sockets": """
pairs = [socket.socketpair() for _ in range(10)]
ends = [end for pair in pairs for end in pair]
""",
    "listening sockets": """
ends = []
listeners = [socket.socket(socket.AF_UNIX) for _ in range(10)]
for number, listener in enumerate(listeners):
    listener.bind(f"\\0{os.getpid()}-{number}")
    listener.listen(1)
    ends.append(socket.socket(socket.AF_UNIX))
    ends[-1].connect(listener.getsockname())
""",
}
CLOSING = """
import os, socket, sys, time, torch
torch.cuda.allocate(0, 1)
print("ready", flush=True)
sys.stdin.readline()
os.closerange(3, 64)
time.sleep(0.2)  # the check and the call that follows are not atomic: a call that has started ends first
{filled}
print("filled", flush=True)
{then}
for end in ends:
    end.setblocking(False)
    try:
        print("received", end.recv(100))
    except BlockingIOError:
        pass
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("filled", FILLED)
@pytest.mark.parametrize("call", ["stop()", "start()", "startup._after_fork()"])
def test_sockets_with_the_numbers_of_the_probe_are_not_used(tmp_path: Path, filled: str, call: str) -> None:
    then = f"sys.modules['_gpumon_probe_agent'].{call}"
    with running(tmp_path, CLOSING.format(filled=FILLED[filled], then=then)) as program:
        assert program.hear() == "ready"
        program.probe().until("statistics")
        program.say("")
        assert program.hear() == "filled"
        assert program.end() == (0, "", "")


def test_with_green_threads_it_does_not_run(tmp_path: Path) -> None:
    code = """
import _thread, signal, torch
def at_once(function, arguments):
    function(*arguments)
_thread.start_new_thread = at_once
torch.cuda.allocate(0, 1)
print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""
    assert run(tmp_path, code) == ["set()"]
    assert sockets(tmp_path) == []


@pytest.mark.parametrize(("version", "observers"), [("1.13.1", 0), ("2.0.1+cu118", 0), ("2.1.0", 1), ("2.10.0a0", 1)])
def test_releases_that_call_observers_with_a_lock_get_none(tmp_path: Path, version: str, observers: int) -> None:
    code = f"""
import torch
torch.__version__ = {version!r}
torch.cuda.allocate(0, 1)
print(len(torch.cuda._observers))
"""
    assert run(tmp_path, code) == [str(observers)]


@pytest.mark.parametrize("rank", ["\u00b2", "9" * 5000, "-1", ""], ids=["high", "endless", "negative", "empty"])
def test_a_rank_that_is_not_a_number_is_none(monkeypatch: pytest.MonkeyPatch, rank: str) -> None:
    monkeypatch.setenv("RANK", rank)
    assert process_facts()["rank"] is None


# The package


def test_it_imports_only_the_standard_library() -> None:
    code = f"""
import sys, time
sys.path.insert(0, {str(SITE.parent)!r})
before = set(sys.modules)
import agent
added = set(sys.modules) - before
allowed = set(getattr(sys, "stdlib_module_names", added))
print(sorted(n for n in added if n.split(".")[0] not in allowed | {{"agent", "_gpumon_probe_agent"}}))
print(sorted(added & {{"gzip", "typing", "traceback", "threading", "gpumon", "torch", "agent.oom_file"}}))
"""
    for python in pythons():
        done = subprocess.run([python, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
        assert (done.stdout.splitlines(), done.stderr) == (["[]", "[]"], ""), python


@pytest.mark.parametrize("python", pythons())
def test_its_import_is_cheap(python: str) -> None:
    """It executes less than half the lines of what it imports from the standard library, as a training process does."""

    def lines(imported: str) -> int:
        """The lines that an import of the agent executes, after other imports: these do not depend on the load."""
        code = f"""
import sys
{imported}
sys.path.insert(0, {str(SITE.parent)!r})
count = 0
def trace(frame, event, argument):
    global count
    count += event == "line"
    return trace
sys.settrace(trace)
import agent
sys.settrace(None)
print(count)
"""
        return int(subprocess.run([python, "-c", code], capture_output=True, check=True).stdout)

    own = lines("import atexit, collections, contextlib, json, re, select, signal, socket, struct")
    total = lines("")
    print(f"{python}: {own} lines, {total} with the standard library")
    assert own < (total - own) / 2


def test_its_protocol_is_the_one_that_gpumon_reads() -> None:
    assert (SCHEMA, MIN_INTERVAL, MAX_INTERVAL) == (READ_SCHEMA, MIN_PACE, MAX_PACE)


# Folders


def test_folders_that_others_may_have_created_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "mine").mkdir(0o700)
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    (tmp_path / "file").write_text("")
    assert not any(make_private_folder(str(tmp_path / name)) for name in ("open", "link", "file"))
    assert not make_private_folder(str(tmp_path / "none" / "none"))
    if os.getuid() == 0:
        (tmp_path / "theirs").mkdir(0o700)
        os.chown(tmp_path / "theirs", 12345, 12345)
        assert not make_private_folder(str(tmp_path / "theirs"))


def usual_sockets(pid: int) -> list[Path]:
    return list(Path(f"/tmp/gpumon-{os.getuid()}").glob(f"{pid}-*.sock"))


def test_the_next_folder_is_tried(tmp_path: Path) -> None:
    (tmp_path / "gpumon").mkdir()
    (tmp_path / "gpumon").chmod(0o777)
    with running(tmp_path, HOLDING, GPUMON_PROBE_DIR="", XDG_RUNTIME_DIR=str(tmp_path)) as program:
        program.hear()
        assert waited(lambda: usual_sockets(program.process.pid))
        assert program.end()[0] == 0
        assert list((tmp_path / "gpumon").iterdir()) == usual_sockets(program.process.pid) == []


def test_only_the_named_folder_is_used(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with running(tmp_path, HOLDING, GPUMON_PROBE_DIR=str(tmp_path / "open")) as program:
        program.hear()
        waited(lambda: "ProbeEndedError" in complaints(tmp_path))
        assert list((tmp_path / "open").iterdir()) == usual_sockets(program.process.pid) == []
        assert program.end() == (0, "done\n", "")


def test_connections_of_another_user_are_rejected(tmp_path: Path) -> None:
    if os.getuid() != 0 or not Path("/usr/bin/python3").exists():
        pytest.skip("it takes a second user, and an interpreter that everybody can start")
    code = """
import os, sys
os.setuid(12345)
import torch
torch.cuda.allocate(0, 1)
print("ready", flush=True)
sys.stdin.readline()
"""
    tmp_path.chmod(0o777)
    for parent in tmp_path.parents[:3]:
        parent.chmod(parent.stat().st_mode | 0o011)
    with running(tmp_path, code, python="/usr/bin/python3") as program:
        if program.hear() != "ready":
            pytest.skip("another user may not read this checkout")
        path = program.socket()
        asking = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
received = b""
for number in range(int(sys.argv[3])):
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(sys.argv[1])
        connection.sendall((b'{"ask":"summary","id":1,"ordinal":0}\\n', b"[" * 9000, b"\\xff" * 70000)[number % 3])
    except OSError:
        pass
    try:
        received += connection.recv(100)
    except OSError:
        pass
    connection.close()
print(len(received))
"""
        path.chmod(0o777)
        path.parent.chmod(0o711)
        for uid, times, expected in (("12345", "1", "100"), ("23456", "250", "0"), ("0", "1", "100")):
            command = ["/usr/bin/python3", "-c", asking, str(path), uid, times]
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
            assert done.stdout.strip() == expected, uid
