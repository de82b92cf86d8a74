# ruff: noqa: TID251, ANN401 - it runs torch in a separate process, as a training job does, and other frameworks
"""The training runs that are traced on demand: ``python traced_training.py KIND FOLDER``.

It writes ``ready-RANK`` with its PID when its steps are regular, runs until there is a file ``stop``, and then writes
``steps-RANK``. With a file ``profile`` it runs its own torch.profiler until that is removed.
"""

import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpumon import probe

MAX_SECONDS = 100.0
RANK = int(os.environ.get("RANK", "0"))


class Steps:
    """The steps so far.

    Attributes:
        steps: The end of each, in seconds since the epoch, and its duration in seconds.
        facts: What else the test wants to know.
    """

    def __init__(self, folder: Path, warmup_seconds: float = 3.0) -> None:
        self.steps: list[tuple[float, float]] = []
        self.facts: dict[str, Any] = {}
        self._folder = folder
        self._ready_at = time.time() + warmup_seconds
        self._end = time.time() + MAX_SECONDS
        self._last: float | None = None
        self._is_ready = False

    def done(self) -> bool:
        """Count a step that has ended; return whether to stop."""
        now, last = time.time(), self._last
        self._last = now
        if last is not None:
            self.steps.append((now, now - last))
        if not self._is_ready and now > self._ready_at:
            self._is_ready = True
            write(self._folder / f"ready-{RANK}", str(os.getpid()))
        return now > self._end or (self._folder / "stop").exists()

    def forget(self) -> None:
        """Leave out the step that contains what was done now."""
        self._last = None

    def save(self) -> None:
        """Write the steps, and what is left of gpumon in this process."""
        import torch

        if not torch.cuda.is_initialized():
            self.facts["exit_code_of_fork"] = forked_exit_code()
        inherited = os.popen("env").read().splitlines()  # the environment of C, not of Python
        self.facts |= {
            "torch": torch.__version__,
            "python_environment": sorted(name for name in os.environ if "KINETO" in name),
            "c_environment": sorted(line.split("=")[0] for line in inherited if "KINETO" in line),
            "threads": sorted(path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")),
            "history_enabled": bool(getattr(torch._C, "_cuda_isHistoryEnabled", bool)()),
        }
        write(self._folder / f"steps-{RANK}", json.dumps({"steps": self.steps, "facts": self.facts}))


def forked_exit_code() -> int | None:
    """How a forked child ends that exits as a program does; None if it hangs."""
    child = os.fork()
    if not child:
        sys.exit(7)
    deadline = time.monotonic() + 10.0
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def write(path: Path, text: str) -> None:
    """Write a file that others see only when it is complete."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text)
    part.rename(path)


def loop(folder: Path, run: Callable[[], None]) -> None:
    """Run steps until the test has seen enough."""
    import torch

    steps = Steps(folder, 3.0 if torch.cuda.is_initialized() else 0.5)
    profiler: Any = None
    while True:
        run()
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        else:
            time.sleep(0.005)
        is_done = steps.done()
        if torch.distributed.is_initialized():  # all ranks stop after the same step
            flag = torch.tensor([float(is_done)], device="cuda")
            torch.distributed.all_reduce(flag)
            is_done = flag.item() > 0
        if is_done:
            break
        if profiler is not None:
            time.sleep(0.05)  # torch.profiler takes long to read a profile of many steps
        wants = (folder / "profile").exists()
        if wants and profiler is None:
            profiler = torch.profiler.profile()
            profiler.start()
            write(folder / "profiling", "")
            steps.forget()
        elif not wants and profiler is not None:
            profiler.stop()
            kind = "CUDA" if torch.cuda.is_initialized() else "CPU"
            count = sum(kind in str(event.device_type) for event in profiler.events())
            steps.facts["own_profiles"] = [*steps.facts.get("own_profiles", []), count]
            profiler = None
            (folder / "profiling").unlink()
            steps.forget()
    if profiler is not None:
        profiler.stop()
    steps.save()


def main(kind: str, folder: Path) -> None:
    """Train until the test has seen enough."""
    import torch

    if kind in {"trainer", "lightning"}:
        {"trainer": transformers_trainer, "lightning": lightning}[kind](folder)
        return
    if kind == "cpu":
        device, width, layers, rows = torch.device("cpu"), 32, 4, 64
        probe.start()
    else:
        device, width, layers, rows = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))), 2048, 16, 4096
        torch.cuda.set_device(device)
    width, layers = {"small": (512, 16), "compile": (1024, 4)}.get(kind, (width, layers))
    blocks = [
        torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.LayerNorm(width))
        for _ in range(layers)
    ]
    net: Any = torch.nn.Sequential(*blocks).to(device, torch.bfloat16)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        torch.distributed.init_process_group("nccl")
        net = torch.nn.parallel.DistributedDataParallel(net, device_ids=[device.index])
    if kind == "compile":
        net = torch.compile(net)
    if kind == "history":
        torch.cuda.memory._record_memory_history(max_entries=10_000)
    is_graph = kind == "graph"
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-5, capturable=is_graph)
    batch = torch.randn(rows, width, device=device, dtype=torch.bfloat16)

    def step() -> None:
        optimizer.zero_grad(set_to_none=not is_graph)
        net(batch).float().pow(2).mean().backward()
        optimizer.step()

    loop(folder, captured(step) if is_graph else step)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def captured(step: Callable[[], None]) -> Callable[[], None]:
    """The step as a CUDA graph."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(5):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    replay: Callable[[], None] = graph.replay
    return replay


def transformers_trainer(folder: Path) -> None:
    """A small language model with transformers' Trainer."""
    import torch

    transformers: Any = importlib.import_module("transformers")
    steps = Steps(folder)

    class Tokens(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 1_000_000

        def __getitem__(self, index: int) -> dict[str, Any]:
            tokens = torch.randint(0, 1000, (128,))
            return {"input_ids": tokens, "labels": tokens}

    class Watch(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop = steps.done()

    config = transformers.GPT2Config(vocab_size=1000, n_positions=128, n_embd=256, n_layer=4, n_head=4)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "output"),
        max_steps=1_000_000,
        per_device_train_batch_size=16,
        report_to=[],
        logging_strategy="no",
        save_strategy="no",
        disable_tqdm=True,
        bf16=True,
    )
    model = transformers.GPT2LMHeadModel(config)
    transformers.Trainer(model=model, args=arguments, train_dataset=Tokens(), callbacks=[Watch()]).train()
    steps.save()


def lightning(folder: Path) -> None:
    """A small model with Lightning."""
    import torch

    pl: Any = importlib.import_module("lightning.pytorch")
    steps = Steps(folder)

    class Batches(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            while not steps.done():
                yield torch.randn(512)

    class Model(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.GELU(), torch.nn.Linear(512, 512))

        def training_step(self, batch: Any, _: int) -> Any:
            return self.net(batch).pow(2).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-4)

    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="gpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=str(folder),
    )
    trainer.fit(Model(), torch.utils.data.DataLoader(Batches(), batch_size=None))
    steps.save()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
