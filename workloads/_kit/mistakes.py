"""The mistakes that the workload ``errors`` makes on purpose: each with its mending, its error and its right result.

The mending changes one place in the file, or the environment; all else stays as it is. The names are those of gpumon's
catalogue of errors.
"""

from __future__ import annotations

from collections.abc import Mapping

from _kit.mistake import DEVICE, Mistake

OOM_CAP_BYTES = 128 << 20

_MISTAKES = (
    Mistake(
        "oom",
        "All the data goes to the GPU at once, and it does not fit under the cap.",
        "The data goes there in parts.",
        f"""\
import torch

cap = {OOM_CAP_BYTES >> 20} << 20  # what this demonstration takes at most
torch.cuda.set_per_process_memory_fraction(cap / torch.cuda.mem_get_info()[1])
rows = torch.ones(32, 2 << 20)
total = 0
for part in rows.split(32):
    total += int(part.to("cuda").sum())
print(total)
""",
        r"CUDA out of memory\. Tried to allocate",
        str(32 * (2 << 20)),
        wrong="rows.split(32)",
        mended="rows.split(4)",
        memory_bytes=OOM_CAP_BYTES,
    ),
    Mistake(
        "device-mismatch",
        "The weights are on the GPU, and the batch is not.",
        "The batch goes where the weights are.",
        """\
import torch

weights = torch.full((2,), 3.0, device="cuda")
batch = torch.tensor([1.0, 2.0])
print((weights * batch).tolist())
""",
        "Expected all tensors to be on the same device",
        "[3.0, 6.0]",
        wrong="weights * batch",
        mended="weights * batch.to(weights.device)",
    ),
    Mistake(
        "dtype-mismatch",
        "The model is in bfloat16, and the batch is in float32.",
        "The batch takes the type of the weights.",
        f"""\
import torch

model = torch.nn.Linear(2, 1, bias=False, device="{DEVICE}", dtype=torch.bfloat16)
torch.nn.init.ones_(model.weight)
batch = torch.ones(3, 2, device="{DEVICE}")
print(model(batch).sum().item())
""",
        "must have the same dtype|to have the same dtype|expected scalar type",
        "6.0",
        wrong="model(batch)",
        mended="model(batch.to(model.weight.dtype))",
        on_cpu=True,
    ),
    Mistake(
        "shape",
        "Images go into a layer that wants each of them as one row.",
        "The images are flattened, all dimensions but that of the batch.",
        f"""\
import torch

images = torch.ones(4, 3, 2, 2, device="{DEVICE}")
model = torch.nn.Linear(3 * 2 * 2, 5, device="{DEVICE}")
print(tuple(model(images).shape))
""",
        "shapes cannot be multiplied",
        "(4, 5)",
        wrong="model(images)",
        mended="model(images.flatten(1))",
        on_cpu=True,
    ),
    Mistake(
        "to-numpy",
        "NumPy is given a tensor of the GPU, whose memory it cannot read.",
        "The tensor is copied to the host first.",
        """\
import torch

scores = torch.full((2,), 3.0, device="cuda")
print(scores.numpy().sum())
""",
        "can't convert .+ device type tensor to numpy",
        "6.0",
        wrong="scores.numpy()",
        mended="scores.detach().cpu().numpy()",
        modules=("numpy",),
    ),
    Mistake(
        "bad-ordinal",
        "The process chooses its GPU by its number among all processes; on the second machine there is no such GPU.",
        "The process chooses by its number on this machine.",
        """\
import os
import torch

device = f"cuda:{os.environ['RANK']}"
print(torch.full((2,), 2.0, device=device).sum().item())
""",
        "invalid device ordinal",
        "4.0",
        wrong="os.environ['RANK']",
        mended="os.environ['LOCAL_RANK']",
        environment={"RANK": "1", "LOCAL_RANK": "0"},
    ),
    Mistake(
        "no-gpus",
        "CUDA_VISIBLE_DEVICES is set and empty, so CUDA shows no GPU.",
        "CUDA_VISIBLE_DEVICES names a GPU again.",
        """\
import torch

print(torch.full((2,), 2.0, device="cuda").sum().item())
""",
        "No CUDA GPUs are available|no CUDA-capable device is detected",
        "4.0",
        wrong_environment={"CUDA_VISIBLE_DEVICES": ""},
    ),
    Mistake(
        "not-compiled",
        "The GPU is asked for, and this torch is a build for the CPU, or is made to look like one.",
        "The device is chosen by what is there. (Where there is a GPU, a build with CUDA is the better mending.)",
        """\
import torch

if torch.version.cuda:  # a build for the CPU lacks this
    del torch._C._cuda_getDeviceCount
device = "cuda"
print(torch.full((2,), 2.0, device=device).sum().item())
""",
        "Torch not compiled with CUDA enabled",
        "4.0",
        wrong='device = "cuda"',
        mended='device = "cuda" if torch.cuda.is_available() else "cpu"',
        on_cpu=True,
    ),
    Mistake(
        "fork",
        "A process that uses CUDA forks, and its child uses CUDA too.",
        "The child is spawned: it starts from nothing.",
        """\
import sys
import torch


def work():
    print(torch.full((2,), 2.0, device="cuda").sum().item(), flush=True)


if __name__ == "__main__":
    torch.cuda.init()
    child = torch.multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
    sys.exit(child.exitcode)
""",
        "Cannot re-initialize CUDA in forked subprocess",
        "4.0",
        wrong='get_context("fork")',
        mended='get_context("spawn")',
    ),
    Mistake(
        "device-assert",
        "A word has the number 9, and the table has 4 rows.",
        "The table has as many rows as the largest number asks for.",
        """\
import torch

words = torch.tensor([3, 9], device="cuda")
rows = 4
table = torch.ones(rows, 2, device="cuda")
print(torch.nn.functional.embedding(words, table).sum().item())
""",
        "device-side assert triggered",
        "4.0",
        wrong="rows = 4",
        mended="rows = int(words.max()) + 1",
        kills=(
            "It provokes an assert on the GPU, which kills the CUDA context of the process that meets it: a child that "
            "does nothing else. The driver may note an Xid in the kernel's log."
        ),
    ),
    Mistake(
        "graph-capture",
        "The loss is read by the host while a CUDA graph is captured.",
        "The loss stays on the GPU; the host reads it after the replay.",
        """\
import torch

x = torch.ones(4, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):  # a warm-up, as every capture wants
    (x * 2).sum()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    loss = (x * 2).sum().item()
graph.replay()
print(float(loss))
""",
        "operation not permitted when stream is capturing|due to a previous error during capture",
        "8.0",
        wrong=".sum().item()",
        mended=".sum()",
    ),
    Mistake(
        "pin-memory",
        "Memory is pinned that cannot be: it is the GPU's already, or there is no GPU.",
        "The batch is made on the host, and pinned where there is a GPU.",
        f"""\
import torch

batch = torch.ones(4, device="{DEVICE}").pin_memory()
print(batch.to("{DEVICE}").sum().item())
""",
        "only dense CPU tensors can be pinned|Cannot access accelerator device|Found no NVIDIA driver|No CUDA GPUs",
        "4.0",
        wrong=f'torch.ones(4, device="{DEVICE}").pin_memory()',
        mended="torch.ones(4, pin_memory=torch.cuda.is_available())",
        on_cpu=True,
    ),
    Mistake(
        "alloc-conf",
        "A setting of the allocator has a value that it does not know; it would do the same in PYTORCH_ALLOC_CONF.",
        "The value is True, with a capital letter: only that and False are known.",
        f"""\
import torch

conf = "expandable_segments:true"
configure = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
(configure or torch.cuda.memory._set_allocator_settings)(conf)
print(torch.ones(4, device="{DEVICE}").sum().item())
""",
        "Expected 'True' or 'False'|Expected a single True/False",
        "4.0",
        wrong=":true",
        mended=":True",
        on_cpu=True,
    ),
    Mistake(
        "load-map",
        "A checkpoint of a GPU is loaded where there is none.",
        "torch.load is told where the tensors go.",
        """\
import io
import torch

torch.serialization.location_tag = lambda _: "cuda:0"  # as if it were saved on a GPU
saved = io.BytesIO()
torch.save({"weights": torch.ones(4)}, saved)
saved.seek(0)
print(torch.load(saved)["weights"].sum().item())
""",
        "Attempting to deserialize object on a CUDA device",
        "4.0",
        wrong="torch.load(saved)",
        mended='torch.load(saved, map_location="cpu")',
        environment={"CUDA_VISIBLE_DEVICES": ""},
        on_cpu=True,
    ),
    Mistake(
        "sync-debug",
        "The host reads the loss of every step, and torch was told to forbid that.",
        "The sum stays on the GPU; the host reads it once, at the end.",
        """\
import torch

torch.cuda.set_sync_debug_mode("error")
total = torch.zeros((), device="cuda")
for _ in range(3):
    loss = torch.full((), 2.0, device="cuda")
    total = total + loss.item()
torch.cuda.set_sync_debug_mode("default")
print(float(total))
""",
        "called a synchronizing CUDA operation",
        "6.0",
        wrong="loss.item()",
        mended="loss",
    ),
)

MISTAKES: Mapping[str, Mistake] = {each.name: each for each in _MISTAKES}
