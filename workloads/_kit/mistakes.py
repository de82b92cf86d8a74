"""The mistakes that the workload ``errors`` makes on purpose, with their fix, error message and correct result.

A fix changes one expression of the program, or the environment. The names are ids of gpumon's error catalogue.
"""

from __future__ import annotations

from collections.abc import Mapping

from _kit.mistake import DEVICE, Mistake
from _kit.mistakes_training import TRAINING_MISTAKES

OOM_CAP_BYTES = 128 << 20

_MISTAKES = (
    Mistake(
        "oom",
        "All data is copied to the GPU at once and does not fit under the memory cap.",
        "The data is copied in parts.",
        f"""\
import torch

cap = {OOM_CAP_BYTES >> 20} << 20  # limit of this demonstration
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
        fixed="rows.split(4)",
        memory_bytes=OOM_CAP_BYTES,
    ),
    Mistake(
        "device-mismatch",
        "The weights are on the GPU, and the batch is on the CPU.",
        "The batch is copied to the device of the weights.",
        """\
import torch

weights = torch.full((2,), 3.0, device="cuda")
batch = torch.tensor([1.0, 2.0])
print((weights * batch).tolist())
""",
        "Expected all tensors to be on the same device",
        "[3.0, 6.0]",
        wrong="weights * batch",
        fixed="weights * batch.to(weights.device)",
    ),
    Mistake(
        "dtype-mismatch",
        "The model is bfloat16, and the batch is float32.",
        "The batch is converted to the dtype of the weights.",
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
        fixed="model(batch.to(model.weight.dtype))",
        on_cpu=True,
    ),
    Mistake(
        "shape",
        "Images are passed to a linear layer that expects one row per image.",
        "The images are flattened from dimension 1 on.",
        f"""\
import torch

images = torch.ones(4, 3, 2, 2, device="{DEVICE}")
model = torch.nn.Linear(3 * 2 * 2, 5, device="{DEVICE}")
print(tuple(model(images).shape))
""",
        "shapes cannot be multiplied",
        "(4, 5)",
        wrong="model(images)",
        fixed="model(images.flatten(1))",
        on_cpu=True,
    ),
    Mistake(
        "to-numpy",
        "A GPU tensor is converted to NumPy, which cannot read GPU memory.",
        "The tensor is copied to the host first.",
        """\
import torch

scores = torch.full((2,), 3.0, device="cuda")
print(scores.numpy().sum())
""",
        "can't convert .+ device type tensor to numpy",
        "6.0",
        wrong="scores.numpy()",
        fixed="scores.detach().cpu().numpy()",
        modules=("numpy",),
    ),
    Mistake(
        "bad-ordinal",
        "The process chooses its GPU by its global rank; on the second host, this GPU does not exist.",
        "The process chooses its GPU by its local rank.",
        """\
import os
import torch

device = f"cuda:{os.environ['RANK']}"
print(torch.full((2,), 2.0, device=device).sum().item())
""",
        "invalid device ordinal",
        "4.0",
        wrong="os.environ['RANK']",
        fixed="os.environ['LOCAL_RANK']",
        environment={"RANK": "1", "LOCAL_RANK": "0"},
    ),
    Mistake(
        "no-gpus",
        "CUDA_VISIBLE_DEVICES is set to an empty string, which hides all GPUs.",
        "CUDA_VISIBLE_DEVICES names a GPU.",
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
        "The program uses the GPU with a CPU-only build of torch (simulated where torch has CUDA).",
        "The program falls back to the CPU. (On a host with a GPU, install a build with CUDA instead.)",
        """\
import torch

if torch.version.cuda:  # a CPU-only build has no such function
    del torch._C._cuda_getDeviceCount
device = "cuda"
print(torch.full((2,), 2.0, device=device).sum().item())
""",
        "Torch not compiled with CUDA enabled",
        "4.0",
        wrong='device = "cuda"',
        fixed='device = "cuda" if torch.cuda.is_available() else "cpu"',
        on_cpu=True,
    ),
    Mistake(
        "fork",
        "A process that has initialized CUDA forks, and the child uses CUDA.",
        "The child is started with the spawn method.",
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
        fixed='get_context("spawn")',
    ),
    Mistake(
        "device-assert",
        "An index is 9, and the embedding table has 4 rows.",
        "The table gets one row more than the largest index.",
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
        fixed="rows = int(words.max()) + 1",
        kills=(
            "A device-side assert destroys the CUDA context of its process, here a child process that "
            "does nothing else. The driver may log an Xid in the kernel log."
        ),
    ),
    Mistake(
        "graph-capture",
        "The program reads the loss on the host while a CUDA graph is captured.",
        "The loss stays on the GPU, and the host reads it after the replay.",
        """\
import torch

x = torch.ones(4, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):  # warm-up before the capture
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
        fixed=".sum()",
    ),
    Mistake(
        "pin-memory",
        "pin_memory() is called on a GPU tensor, or on a host without a GPU.",
        "The batch is created on the host, and pinned if CUDA is available.",
        f"""\
import torch

batch = torch.ones(4, device="{DEVICE}").pin_memory()
print(batch.to("{DEVICE}").sum().item())
""",
        "only dense CPU tensors can be pinned|Cannot access accelerator device|Found no NVIDIA driver|No CUDA GPUs",
        "4.0",
        wrong=f'torch.ones(4, device="{DEVICE}").pin_memory()',
        fixed="torch.ones(4, pin_memory=torch.cuda.is_available())",
        on_cpu=True,
    ),
    Mistake(
        "alloc-conf",
        "An allocator setting has an invalid value; PYTORCH_ALLOC_CONF would fail in the same way.",
        "The value is spelled True; only True and False are valid.",
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
        fixed=":True",
        on_cpu=True,
    ),
    Mistake(
        "load-map",
        "A checkpoint saved from a GPU is loaded on a host without a GPU.",
        "torch.load gets map_location.",
        """\
import io
import torch

torch.serialization.location_tag = lambda _: "cuda:0"  # simulates a checkpoint from a GPU
saved = io.BytesIO()
torch.save({"weights": torch.ones(4)}, saved)
saved.seek(0)
print(torch.load(saved)["weights"].sum().item())
""",
        "Attempting to deserialize object on a CUDA device",
        "4.0",
        wrong="torch.load(saved)",
        fixed='torch.load(saved, map_location="cpu")',
        environment={"CUDA_VISIBLE_DEVICES": ""},
        on_cpu=True,
    ),
    Mistake(
        "sync-debug",
        "The host reads the loss in every step, and torch is set to raise an error for it.",
        "The sum stays on the GPU, and the host reads it once at the end.",
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
        fixed="loss",
    ),
)

MISTAKES: Mapping[str, Mistake] = {mistake.name: mistake for mistake in (*_MISTAKES, *TRAINING_MISTAKES)}
