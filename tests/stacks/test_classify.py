"""The class of a sample, by its stack and its source lines."""

import pytest

from gpumon.core.stacks import StackFrame
from gpumon.core.step_classes import (
    ANOMALY,
    BACKWARD,
    CHECKPOINT,
    COLLECTION,
    COMMUNICATION,
    COMPILATION,
    COPIES,
    DATA,
    EMPTY_CACHE,
    EVALUATION,
    FORWARD,
    LOCKS,
    LOGGING,
    OPTIMIZER,
    PREPARATION,
    PROGRAMS,
    PYTHON,
    SLEEP,
    STATE_COPIES,
    SYNC,
)
from gpumon.stacks.classify import classify
from gpumon.stacks.tables import place_of
from tests.insight.bottlenecks.makers import (
    BACKWARD_STACK,
    DATA_STACK,
    FORWARD_STACK,
    MODULE,
    OPTIMIZER_STACK,
    PROGRAM,
    sources,
    stack,
)

LOADER = ("torch/utils/data/dataloader.py", "__next__")
BY_STACK = [
    (FORWARD_STACK, FORWARD, ""),
    (BACKWARD_STACK, BACKWARD, ""),
    (OPTIMIZER_STACK, OPTIMIZER, ""),
    (DATA_STACK, DATA, "few_workers"),
    (
        stack(("program:data.py", "__getitem__"), ("torch/utils/data/_utils/fetch.py", "fetch"), LOADER),
        DATA,
        "main_process",
    ),
    (
        stack(("std:multiprocessing/popen_fork.py", "_launch"), ("torch/utils/data/dataloader.py", "__init__")),
        DATA,
        "worker_start",
    ),
    (stack(("std:queue.py", "get"), ("program:feed.py", "batches")), DATA, "queue"),
    (stack(("std:threading.py", "wait"), ("std:threading.py", "join")), LOCKS, "lock"),
    (stack(("std:subprocess.py", "communicate"), ("program:util.py", "gpu_temperature")), PROGRAMS, "subprocess"),
    (stack(("torch/serialization.py", "_save"), ("torch/serialization.py", "save")), CHECKPOINT, "checkpoint"),
    (stack(("safetensors/torch.py", "save_file")), CHECKPOINT, "checkpoint"),
    (stack(("program:ckpt.py", "save_checkpoint")), CHECKPOINT, "checkpoint"),
    (stack(("std:copy.py", "deepcopy"), ("std:copy.py", "_reconstruct")), STATE_COPIES, "copies"),
    (stack(("std:logging/__init__.py", "emit")), LOGGING, "disk"),
    (stack(("torch/utils/tensorboard/writer.py", "add_scalar")), LOGGING, "disk"),
    (stack(("urllib3/connectionpool.py", "urlopen")), LOGGING, "network"),
    (
        stack(("torch/_dynamo/symbolic_convert.py", "step"), ("torch/_dynamo/convert_frame.py", "__call__")),
        COMPILATION,
        "recompiles",
    ),
    (stack(("torch/_inductor/compile_fx.py", "compile_fx_inner")), COMPILATION, "recompiles"),
    (stack(("torch/cuda/memory.py", "empty_cache")), EMPTY_CACHE, "empty_cache"),
    (stack(("std:traceback.py", "format_stack"), ("torch/nn/functional.py", "linear")), ANOMALY, "anomaly_mode"),
    (
        stack(
            ("std:traceback.py", "walk_stack"),
            ("torch/fx/traceback.py", "format_stack"),
            ("torch/nn/modules/linear.py", "forward"),
        ),
        ANOMALY,
        "anomaly_mode",
    ),
    (
        stack(("std:functools.py", "wrapper"), ("torch/_subclasses/fake_tensor.py", "_make_cache_entry")),
        COMPILATION,
        "recompiles",
    ),
    (stack(("PIL/Image.py", "resize"), ("program:feed.py", "crop")), PREPARATION, "main_process"),
    (stack(("program:feed.py", "load_batch")), PREPARATION, "main_process"),
    (stack(("torch/nn/functional.py", "linear"), MODULE, ("program:train.py", "evaluate")), EVALUATION, "evaluation"),
    (
        stack(("torch/distributed/distributed_c10d.py", "all_reduce"), ("torch/distributed/c10d_logger.py", "wrapper")),
        COMMUNICATION,
        "communication",
    ),
    (stack(("std:gzip.py", "read"), ("program:feed.py", "load_samples")), PREPARATION, "main_process"),
    (stack(("torch/nn/modules/container.py", "forward"), MODULE), FORWARD, "overhead"),
    (stack(("torch/nn/modules/linear.py", "forward"), MODULE, ("torch/optim/lbfgs.py", "step")), FORWARD, ""),
    (
        stack(
            ("torch/_inductor/output_code.py", "__call__"),
            ("torch/_functorch/_aot_autograd/runtime_wrappers.py", "runtime_wrapper"),
            ("torch/_dynamo/eval_frame.py", "compile_wrapper"),
            MODULE,
        ),
        FORWARD,
        "",
    ),
    ((), PYTHON, ""),
]


@pytest.mark.parametrize(("frames", "name", "kind"), BY_STACK)
def test_the_class_by_the_stack(frames: tuple[StackFrame, ...], name: str, kind: str) -> None:
    sample = classify(frames, sources({}), has_gpu=False)

    assert (sample.name, sample.kind) == (name, kind)


BY_SOURCE = [
    ("total += loss.item()", SYNC, PYTHON, "item_per_step"),
    ("correct += (out.argmax(1) == y).sum().item()", SYNC, FORWARD, "item_per_step"),
    ("history.append(float(loss))", SYNC, PYTHON, "item_per_step"),
    ("torch.cuda.synchronize()", SYNC, FORWARD, "synchronize"),
    ("x, y = x.to(device), y.to(device)", COPIES, PYTHON, "copies"),
    ("values = out.cpu()", SYNC, PYTHON, "copies"),
    ("time.sleep(0.01)", SLEEP, SLEEP, "sleep"),
    ("gc.collect()", COLLECTION, COLLECTION, "gc"),
    ("os.fsync(log.fileno())", LOGGING, LOGGING, "disk"),
    ("print(step, value)", LOGGING, LOGGING, "disk"),
    ("torch.save(model.state_dict(), path)", CHECKPOINT, CHECKPOINT, "checkpoint"),
    ("with self.lock:", LOCKS, LOCKS, "lock"),
    ("with guard:  # shared with the uploader", LOCKS, LOCKS, "lock"),
    ("batch = batch_queue.get()", DATA, DATA, "queue"),
    ("scores = x @ w", FORWARD, FORWARD, ""),
    ("total = total + weights[i] * i", PYTHON, PYTHON, "python"),
    ("loss.backward()", BACKWARD, BACKWARD, ""),
]


@pytest.mark.parametrize(("source", "on_gpu", "on_cpu", "kind"), BY_SOURCE)
def test_the_class_by_the_source_line(source: str, on_gpu: str, on_cpu: str, kind: str) -> None:
    lines = sources({10: source})

    sample = classify(stack(), lines, has_gpu=True)

    assert (sample.name, sample.kind) == (on_gpu, kind)
    assert classify(stack(), lines, has_gpu=False).name == on_cpu
    assert (sample.line, sample.text) == ("train.py:10", source)


def test_a_call_of_the_standard_library_counts_for_the_line_of_the_program() -> None:
    frames = stack(("std:pathlib.py", "write_text"))

    assert classify(frames, sources({10: "path.write_text(report)"}), has_gpu=False).name == LOGGING


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("cubic = values + 0.044715 * values * values", FORWARD),
        ("return self.scale * (values - mean)", FORWARD),
        ("mask = [index < length for index in range(size)]", PYTHON),
        ("rows = list(range(size)) + rows", PYTHON),
    ],
)
def test_arithmetic_in_a_module_is_forward(source: str, name: str) -> None:
    frames = (StackFrame(PROGRAM, 20, "forward"), *stack(MODULE))

    assert classify(frames, sources({20: source}), has_gpu=False).name == name


@pytest.mark.parametrize(
    ("file", "kind", "module"),
    [
        ("/opt/conda/lib/python3.12/site-packages/torch/nn/functional.py", "torch", "torch/nn/functional.py"),
        ("/usr/lib/python3/dist-packages/numpy/core.py", "library", "numpy/core.py"),
        ("/opt/conda/lib/python3.12/json/decoder.py", "standard", "json/decoder.py"),
        ("/home/u/.local/share/uv/python/cpython-3.13.1/lib/python3.13t/queue.py", "standard", "queue.py"),
        ("/usr/lib64/python3.9/ssl.py", "standard", "ssl.py"),
        ("<frozen importlib._bootstrap>", "standard", "<frozen importlib._bootstrap>"),
        ("/tmp/torchinductor_ana/ab/cab.py", "generated", "/tmp/torchinductor_ana/ab/cab.py"),
        ("/src/pytorch/torch/nn/modules/module.py", "torch", "torch/nn/modules/module.py"),
        ("/home/ana/torch/train.py", "program", "/home/ana/torch/train.py"),
        ("torch/nn/modules/linear.py", "torch", "torch/nn/modules/linear.py"),
        ("threading.py", "standard", "threading.py"),
        ("<stdin>", "program", "<stdin>"),
        ("/pytorch/c10/cuda/CUDACachingAllocator.cpp", "native", "/pytorch/c10/cuda/CUDACachingAllocator.cpp"),
        ("/opt/gpumon/probe/agent/sampler.py", "library", "gpumon/probe/"),
        (PROGRAM, "program", PROGRAM),
    ],
)
def test_the_place_of_a_file(file: str, kind: str, module: str) -> None:
    assert place_of(file) == (kind, module)
