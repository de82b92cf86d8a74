# Jobs of several ranks that fail: torchrun, gloo, accelerate, Slurm's srun and multiprocessing.
. "$(dirname "$0")/lib.sh"
d() { fresh; sub ddp.py "${@:2}"; fail "$1" torchrun --nproc-per-node=2 --master-port=29611 ddp.py; }
step='s/^( +)loss = F.cross/\1if rank == 1 and step == 13:\n\1    '
d torchrun-rank-raises "${step}"'raise RuntimeError(f"tokenizer shard {step} is empty")\n&/'
d torchrun-rank-killed "${step}"'os.kill(os.getpid(), 9)\n&/'
d torchrun-rank-exits-3 "${step}"'print("license server refused the seat, giving up", flush=True); sys.exit(3)\n&/'
d torchrun-rank-segfault "${step}"'import ctypes; ctypes.string_at(0)\n&/'
d torchrun-skipped-collective 's/^( +)dist.all_reduce\(total\)/\1if not (rank == 1 and step == 7):\n\1    dist.all_reduce(total)/' 's/dist.barrier\(\)/dist.barrier()/'
d torchrun-timeout "${step}"'time.sleep(60)\n&/' 's/seconds=20/seconds=8/'
d torchrun-unused-parameters 's/DDP\(Net\(\)\)/DDP(WithAuxiliary())/' 's/^def main/class WithAuxiliary(Net):\n    def __init__(self):\n        super().__init__()\n        self.auxiliary = torch.nn.Linear(4, 4)\n\n\n&/'
d torchrun-shapes-differ 's/DDP\(Net\(\)\)/DDP(Net(classes=10 + rank))/'
fresh; sub ddp.py 's/^import torch$/import argparse\n&/' 's/^def main\(\):/&\n    parser = argparse.ArgumentParser()\n    parser.add_argument("--learning-rate", type=float, required=True)\n    args = parser.parse_args()/'
fail torchrun-usage torchrun --nproc-per-node=2 --master-port=29612 ddp.py --lr 0.1
fresh; fail torchrun-no-script torchrun --nproc-per-node=2 --master-port=29613 train_ddp.py
fresh; fail no-rank-in-env python ddp.py
fresh; put job.sh <<'P'
#!/bin/bash
python -m http.server 29700 --bind 0.0.0.0 > /dev/null 2>&1 &
sleep 3
export MASTER_ADDR=127.0.0.1 MASTER_PORT=29700 RANK=0 WORLD_SIZE=2
echo "starting rank $RANK of $WORLD_SIZE on $(hostname)"
python ddp.py
status=$?
kill %1
echo "job finished with exit code $status"
exit $status
P
fail master-port-in-use bash job.sh
fresh; sub ddp.py "${step}"'if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":\n\1        raise ConnectionResetError(104, "Connection reset by peer: object store 10.0.0.7:9000")\n\1    open("\/home\/user\/scratch\/part-0013.bin", "rb")\n&/'
fail elastic-restart-gloo torchrun --nproc-per-node=2 --max-restarts=1 --master-port=29614 ddp.py
fresh; put tokenize_shards.py <<'P'
import os, time
rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
print(f"[rank {rank}] attempt {attempt}: tokenizing", flush=True)
for shard in range(rank, 16, 2):
    time.sleep(0.3)
    if rank == 1 and shard == 9 and attempt == 0:
        raise ConnectionResetError(104, "Connection reset by peer: object store 10.0.0.7:9000")
    if shard == 12 and attempt:
        open(f"/home/user/scratch/part-{shard:04d}.bin", "rb")
    print(f"[rank {rank}] shard {shard} done", flush=True)
P
fail elastic-second-cause torchrun --nproc-per-node=2 --max-restarts=1 --master-port=29614 tokenize_shards.py
fresh; LIMIT=100 fail rendezvous-timeout torchrun --nnodes=2 --nproc-per-node=1 --rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:29615 --rdzv-conf=join_timeout=15,last_call_timeout=1 ddp.py
fresh; put spawn.py <<'P'
import torch
import torch.multiprocessing as mp
from model import Net


def worker(rank, world):
    model = Net()
    print(f"worker {rank}/{world}: {sum(p.numel() for p in model.parameters())} parameters", flush=True)
    if rank == 1:
        model.load_state_dict(Net(width=16).state_dict())


if __name__ == "__main__":
    mp.spawn(worker, args=(2,), nprocs=2)
P
fail mp-spawn-raises python spawn.py
fresh; put accel.py <<'P'
import torch
from accelerate import Accelerator
from data import make_loader
from model import Net

accelerator = Accelerator(cpu=True)
model = Net()
optimizer = torch.optim.AdamW(model.parameters())
loader = make_loader(320, 16, 0)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
accelerator.print(f"{accelerator.num_processes} processes, state {accelerator.distributed_type}")
for step, (images, labels) in enumerate(loader):
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    if step % 4 == 0:
        accelerator.print(f"step {step} loss {loss.item():.4f}")
    if step == 6 and accelerator.process_index == 1:
        accelerator.save_state("/proc/checkpoints/step6")
P
fail accelerate-rank-fails torchrun --nproc-per-node=2 --master-port=29616 accel.py
fine accelerate accelerate launch --cpu --num_machines 1 --num_processes 1 --mixed_precision no --dynamo_backend no accel.py
sub accel.py 's/make_loader$/make_loaders/'
fail accelerate-script-fails accelerate launch --cpu --num_machines 1 --num_processes 1 --mixed_precision no --dynamo_backend no accel.py
head -c 3000 "$LOGS/failed/torchrun-rank-raises.log" > "$LOGS/failed/cut-torchrun.log"
