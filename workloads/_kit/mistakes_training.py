"""Mistakes of training loops and of the host, which need no GPU: memory, several ranks, checkpoints, and NaN."""

from __future__ import annotations

from _kit.mistake import DEVICE, Mistake

_HOST_BYTES = 256 << 20

TRAINING_MISTAKES = (
    Mistake(
        "host-allocation",
        "All data is loaded into host memory at once, under the limit of ulimit -v, so that torch reports the error. "
        "At the limit of a container or of Slurm, the kernel kills the process instead.",
        "The data is loaded one part at a time.",
        f"""\
import resource
import torch

in_use = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
limit = in_use + ({_HOST_BYTES >> 20} << 20)  # limit of this demonstration
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
parts = [torch.ones(4 << 20) for _ in range(64)]
print(sum(int(part.sum()) for part in parts))
""",
        r"DefaultCPUAllocator: (can't allocate|not enough) memory",
        str(64 * (4 << 20)),
        wrong="[torch.ones(4 << 20) for _ in range(64)]",
        fixed="(torch.ones(4 << 20) for _ in range(64))",
        environment={"OMP_NUM_THREADS": "1"},  # each thread would reserve address space for its stack
        on_cpu=True,
    ),
    Mistake(
        "ddp-unused",
        "A layer of the model is not used, and DistributedDataParallel waits for its gradient; two ranks, on the CPU.",
        "DistributedDataParallel looks for unused parameters. (If the layer is never used, remove it instead.)",
        """\
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.unused = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)

    def forward(self, batch):
        return self.layer(batch)


def work(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    model = DistributedDataParallel(Model(), find_unused_parameters=False)
    for _ in range(2):
        model(torch.ones(3, 2)).sum().backward()
    if rank == 0:
        print(model.module.layer.weight.grad.sum().item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.start_processes(work, (os.path.abspath("store"),), nprocs=2, start_method="fork")
""",
        "Expected to have finished reduction in the prior iteration",
        "12.0",
        wrong="find_unused_parameters=False",
        fixed="find_unused_parameters=True",
        environment={"GLOO_SOCKET_IFNAME": "lo"},
        on_cpu=True,
    ),
    Mistake(
        "state-dict-mismatch",
        "A checkpoint with 3 classes is loaded into a model with 5.",
        "The model gets the number of classes of the checkpoint.",
        f"""\
import io
import torch

saved = io.BytesIO()
torch.save(torch.nn.Linear(4, 3).state_dict(), saved)
saved.seek(0)
state = torch.load(saved)
model = torch.nn.Linear(4, 5, device="{DEVICE}")
model.load_state_dict(state)
print(tuple(model(torch.ones(2, 4, device="{DEVICE}")).shape))
""",
        "size mismatch for weight",
        "(2, 3)",
        wrong="torch.nn.Linear(4, 5,",
        fixed='torch.nn.Linear(4, len(state["bias"]),',
        on_cpu=True,
    ),
    Mistake(
        "weights-only",
        "A checkpoint contains an object that is not a tensor or a plain value.",
        "The checkpoint contains the values of the object, as a dictionary.",
        """\
import argparse
import io
import torch

arguments = argparse.Namespace(lr=0.5)
saved = io.BytesIO()
torch.save({"weights": torch.ones(4), "arguments": arguments}, saved)
saved.seek(0)
print(torch.load(saved, weights_only=True)["weights"].sum().item())
""",
        "Weights only load failed|Unsupported (operand|class|global)",
        "4.0",
        wrong='"arguments": arguments',
        fixed='"arguments": vars(arguments)',
        on_cpu=True,
    ),
    Mistake(
        "nan-loss",
        "The loss takes the logarithm of a probability that is 0 in float32, and 0 times infinity is NaN.",
        "log_softmax computes the logarithm without the probability.",
        f"""\
import torch

logits = torch.tensor([0.0, 200.0, 200.0], device="{DEVICE}")
target = torch.tensor([0.0, 0.5, 0.5], device="{DEVICE}")
loss = -(target * logits.softmax(0).log()).sum()
if not loss.isfinite():
    raise FloatingPointError(f"Loss is {{loss.item()}}, stopping training")
print(round(loss.item(), 3))
""",
        "Loss is nan",
        "0.693",
        wrong="softmax(0).log()",
        fixed="log_softmax(0)",
        on_cpu=True,
    ),
    Mistake(
        "nan-backward",
        "The loss is finite, and the derivative of sqrt at 0 is not; anomaly detection finds the operation.",
        "The value is kept above 0 before the square root.",
        f"""\
import torch

distances = torch.tensor([0.0, 4.0], device="{DEVICE}", requires_grad=True)
mask = torch.tensor([0.0, 1.0], device="{DEVICE}")
with torch.autograd.set_detect_anomaly(True):
    loss = (mask * distances.sqrt()).sum()
    loss.backward()
print(distances.grad.sum().item())
""",
        "returned nan values in its",
        "0.25",
        wrong="distances.sqrt()",
        fixed="distances.clamp(min=1e-6).sqrt()",
        on_cpu=True,
    ),
)
