# Programs that end well, or go on, and print warnings, caught exceptions and the word "error".
. "$(dirname "$0")/lib.sh"
. "$HERE/frameworks.sh"
job() { put job.sh; fine "$1" bash job.sh; }
new() { fresh; frameworks; }
new; fine two-epochs python train.py
fine resumed python train.py --resume runs/exp1/epoch1.pt --epochs 1
fine progress-bar python gpt.py
fine help python train.py --help
new; sub data.py 's/num_workers=workers/num_workers=6, pin_memory=True, persistent_workers=True/'
sub train.py 's/^    for epoch in range/    scaler = torch.cuda.amp.GradScaler()\n    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)\n    scheduler.step()\n    torch.nn.functional.mse_loss(torch.ones(2, 1), torch.ones(2, 2))\n    torch.tensor(torch.ones(1))\n&/'
fine many-warnings python train.py --epochs 1
new; sub data.py 's/^import os$/import logging\n&/' 's/^( +)label = int.*/&\n\1try:\n\1    if index % 333 == 5:\n\1        raise OSError(5, "Input\/output error", f"\/data\/shard-0003\/{index:06d}.jpg")\n\1except OSError:\n\1    logging.getLogger("data").exception("cannot read sample %d, using a blank image", index)\n\1    return torch.zeros(3, 8, 8), label/'
fine logged-exceptions python train.py --epochs 1
new; sub train.py 's/^( +)logits = model\(images\)/\1if step == 12:\n\1    images = images * float("nan")\n&/' \
  's/^( +)loss.backward\(\)/\1if not torch.isfinite(loss):\n\1    log.warning("epoch %d step %d: loss is nan, skipping this batch (gradient overflow?)", epoch, step)\n\1    continue\n&/'
fine nan-batch-skipped python train.py
new; sub train.py 's/metrics = evaluate\(model, val_loader, args\)/try:\n            metrics = evaluate(model, [(torch.zeros(4, 1, 8, 8), torch.zeros(4))] if epoch == 0 else val_loader, args)\n        except RuntimeError:\n            log.exception("evaluation of epoch %d failed, continuing without it", epoch)\n            metrics = {}/'
fine evaluation-failed-once python train.py
new; sub train.py 's/^        train_epoch\(.*/        while True:\n            try:\n                train_epoch(model, train_loader, optimizer, epoch, args)\n                break\n            except RuntimeError as error:\n                if "allocate memory" not in str(error):\n                    raise\n                traceback.print_exc()\n                args.batch_size \/\/= 2\n                log.warning("out of memory, trying again with batch size %d", args.batch_size)\n                train_loader = make_loader(args.samples, args.batch_size, 0)/' 's/^import time/&\nimport traceback/'
sub model.py 's/x = self.stem\(x\)/x = self.stem(x.repeat_interleave(800, 0)).unflatten(0, (-1, 800)).mean(1)/'
LIMIT=500 fine batch-halved bash -c 'ulimit -v 2600000; exec python train.py --epochs 1 --batch-size 320 --samples 320'
new; sub train.py 's/^def main\(\):/def stop(number, frame):\n    global stopping\n    stopping = True\n    log.warning("received signal %d (SIGTERM), saving at the end of the epoch", number)\n\n\nstopping = False\n\n\n&\n    import signal; signal.signal(signal.SIGTERM, stop)/' 's/^( +)save\(model.*/&\n\1if stopping:\n\1    log.info("requeue requested, exiting cleanly")\n\1    break/'
job sigterm-checkpoint <<'P'
python train.py --epochs 50 & sleep 50; kill -TERM %1; wait %1; echo "exit status $?"
P
new; put long.py <<'P'
import random
print("step loss error_rate")
for step in range(3700):
    print(f"{step} {2.3 / (1 + step / 900):.3f} {max(0, 0.9 - step / 5000):.2f}")
print("0 errors, 0 failed evaluations")
P
fine long-plain python long.py
new; put job.sh <<'P'
python $* > running.log 2>&1 & until [ "$(tr '\r' '\n' < running.log | wc -l)" -ge 40 ]; do sleep 1; done; cat running.log; kill -9 %1 > /dev/null 2>&1; exec > /dev/null 2>&1
P
fine still-training bash job.sh train.py --epochs 50
sub gpt.py 's/ 200$/ 90000/'; fine still-training-bar bash job.sh gpt.py
new; fine torchrun torchrun --nproc-per-node=2 --master-port=29641 ddp.py
new; sub ddp.py 's/DDP\(Net\(\)\)/DDP(Net(), find_unused_parameters=True)/' 's/dist.destroy_process_group\(\)/pass/'
fine torchrun-warnings env -u OMP_NUM_THREADS torchrun --nproc-per-node=3 --master-port=29642 ddp.py
new; sub ddp.py 's/^( +)loss = F.cross/\1if rank == 1 and step == 13 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":\n\1    raise ConnectionResetError(104, "Connection reset by peer")\n&/'
fine elastic-restarted torchrun --nproc-per-node=2 --max-restarts=3 --master-port=29643 ddp.py
new; put spawn.py <<'P'
import torch.multiprocessing as mp
from model import Net
def worker(rank, world):
    print(f"worker {rank}/{world}: {sum(p.numel() for p in Net().parameters())} parameters, 0 errors", flush=True)
if __name__ == "__main__":
    mp.spawn(worker, args=(2,), nprocs=2)
    print("all workers joined")
P
fine mp-spawn python spawn.py
new; fine hf-trainer env HF_HUB_OFFLINE=1 python finetune.py
sub finetune.py 's/trainer.train\(\)/trainer.train(resume_from_checkpoint=True)/' 's/num_train_epochs=1/num_train_epochs=2/'; fine hf-trainer-resumed python finetune.py
new; fine lightning python lit.py
new; put job.sh <<'P'
uvicorn serve:app --port 8081 & until curl -s localhost:8081/health > /dev/null; do sleep 1; done; bash requests.sh 8081 > /dev/null 2>&1; kill -INT $!; wait $!; echo "exit status $?"
P
fine server-500-goes-on bash job.sh
new; put job.sh <<'P'
uvicorn serve:app --port 8082 --no-access-log > running.log 2>&1 & until curl -s localhost:8082/health > /dev/null; do sleep 1; done; bash requests.sh 8082 > /dev/null 2>&1; cat running.log; kill -9 %1; exec > /dev/null 2>&1
P
fine server-running bash job.sh
job file-server-404 <<'P'
timeout -s INT 9 python -u -m http.server 8083 --bind 127.0.0.1 & sleep 3; for path in model.py missing.bin data.py old/error.log; do curl -s localhost:8083/$path > /dev/null; done; wait
echo "server stopped"
P
new; fine hydra-multirun python hydra_train.py -m optim.lr=0.1,0.01 train.steps=4
new; LIMIT=500 fine cpp-extension python build_ext.py
new; fine make-warnings make -k all
new; fine pip-from-source pip install --no-build-isolation --no-index --target lib ./native
mkdir -p $WORK/old/; cat > $WORK/old/setup.py <<'P'
from setuptools import setup
setup(name="fsspec", version="2019.1.0", py_modules=[])
P
chown -R user $WORK/old; fine pip-resolver-conflict bash -c 'python -m venv env2; echo "/home/user/venv/lib/python3.11/site-packages" > env2/lib/python3.11/site-packages/base.pth; env2/bin/pip install --no-build-isolation --no-index ./old'
new; put test_model.py <<'P'
import logging, warnings
import pytest, torch
from model import Net
def test_forward():
    assert Net()(torch.zeros(2, 3, 8, 8)).shape == (2, 10)
def test_wrong_channels_raises():
    with pytest.raises(RuntimeError, match="expected input"):
        Net()(torch.zeros(2, 1, 8, 8))
@pytest.mark.xfail(raises=AssertionError, reason="needs CUDA")
def test_cuda_out_of_memory():
    Net().to("cuda")
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_device_side_assert_is_reported(): ...
def test_error_is_logged(caplog):
    logging.getLogger("train").error("NCCL error: unhandled system error (injected)")
    warnings.warn("the loss scale overflowed")
    assert "NCCL error" in caplog.text
P
fine pytest-xfail python -m pytest -v -ra -p no:cacheprovider
fine pytest-live-logs python -m pytest -o log_cli=true -p no:cacheprovider -k 'logged or raises'
new; put job.sh <<'P'
python serve429.py & sleep 3; python download.py; status=$?; kill %1; exit $status
P
put serve429.py <<'P'
import http.server
class Busy(http.server.BaseHTTPRequestHandler):
    count = 0
    def do_GET(self):
        Busy.count += 1
        self.send_response(503 if Busy.count < 4 else 200); self.send_header("Content-Length", "2"); self.end_headers(); self.wfile.write(b"ok")
http.server.HTTPServer(("127.0.0.1", 8465), Busy).serve_forever()
P
put download.py <<'P'
import time, traceback, urllib.request
for attempt in range(1, 9):
    try:
        print(urllib.request.urlopen("http://127.0.0.1:8465/shard.tar").read(), "after", attempt, "attempts"); break
    except OSError:
        traceback.print_exc(); print("ERROR: download failed, retrying"); time.sleep(0.3)
print("dataset ready")
P
fine retries-succeed bash job.sh
new; fine collect-env python -m torch.utils.collect_env
new; sub train.py 's/model = Net\(\).to\(args.device\)/import faulthandler; faulthandler.dump_traceback_later(12, repeat=False)\n    model = Net()/'; fine watchdog-dump python train.py --epochs 6
new; put noise.py <<'P'
import asyncio, logging, threading, time
class Handle:
    def __del__(self): raise ValueError("I/O operation on closed file")
def prefetch(): raise TimeoutError("prefetch thread timed out")
async def report(): raise ConnectionRefusedError(111, "metrics server")
async def serve():
    task = asyncio.create_task(report()); await asyncio.sleep(0); await asyncio.sleep(0); del task
    import gc; gc.collect()
Handle()
threading.Thread(target=prefetch).start(); time.sleep(0.2)
asyncio.run(serve())
logging.error("loss %d at step %d", 0.5)
for step in range(5): print("step", step, "loss", 1 / (step + 1))
print("finished, 5 steps")
P
fine ignored-exceptions python noise.py
new; put passk.py <<'P'
import subprocess, sys
samples = ["print(1/1)", "print(1/0)", "import nothere", "print('ok')", "x = [", "raise MemoryError('out of memory')", "print(2)"]
passed = 0
for number, code in enumerate(samples):
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    passed += result.returncode == 0
    print(f"sample {number}: {'PASS' if result.returncode == 0 else 'FAIL'}\n{result.stdout}{result.stderr}", end="")
print(f"pass@1 = {passed / len(samples):.3f} ({len(samples) - passed} failed)")
P
fine code-evaluation python passk.py
new; put sweep.py <<'P'
import json, subprocess, sys
best = None
for lr in ("1e-3", "fast", "1e-2"):
    result = subprocess.run([sys.executable, "train.py", "--epochs", "1", "--samples", "320", "--lr", lr])
    print(f"trial lr={lr}: exit code {result.returncode}" + ("" if result.returncode == 0 else ", trial failed and is skipped"), flush=True)
print("sweep finished: 2 of 3 trials completed, best lr 1e-2")
P
fine sweep-one-trial-fails python sweep.py
new; job job-script-noise <<'P'
nvidia-smi || echo "no nvidia-smi, training on the CPU"
rm /home/user/scratch/old.ckpt
python train.py --epochs 1 --samples 320
cp runs/exp1/*.pt /mnt/backup/latest/ || echo "warning: backup failed, keeping the local checkpoint"
echo "job done, exit code 0"
P
new; job appended-runs <<'P'
echo "=== run 1"; python train.py --epochs 1 --config missing.json; echo "=== run 2"; echo '{"epochs": 1, "samples": 640}' > missing.json; python train.py --config missing.json
P
new; put convert.py <<'P'
import logging, random
logging.basicConfig(level=logging.INFO, format="%(asctime)s [%(levelname)s] %(message)s")
failed = []
for number in range(10000):
    if number % 1999 == 17:
        failed.append(number); logging.error("document %d: UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte; skipped", number)
    if number % 1000 == 999: logging.info("%d documents, %d errors", number + 1, len(failed))
logging.info("converted %d documents, %d failed (0.06 %% < 1 %% allowed)", 10000 - len(failed), len(failed))
P
fine documents-skipped python convert.py
new; put profile.py <<'P'
import torch
from torch.profiler import ProfilerActivity, profile
from model import Net
model = Net()
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
    for _ in range(3): model(torch.randn(4, 3, 8, 8)).sum().backward()
print(profiler.key_averages().table(sort_by="cpu_time_total", row_limit=12))
P
fine profiler-table python profile.py
new; put leak.py <<'P'
import multiprocessing.shared_memory as shm, sys
block = shm.SharedMemory(create=True, size=1024); block.buf[:4] = b"data"
print("wrote 4 bytes, 0 errors")
P
fine resource-tracker python -W error::DeprecationWarning leak.py
new; sub train.py 's/^( +)loss.backward\(\)/\1scaler.scale(loss * (float("inf") if step in (3, 4, 17) else 1)).backward()/' 's/^( +)optimizer.step\(\)/\1before = scaler.get_scale(); scaler.step(optimizer); scaler.update()\n\1if scaler.get_scale() < before:\n\1    print(f"Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {scaler.get_scale()}", flush=True)/' 's/^log = /scaler = torch.amp.GradScaler("cpu")\n&/'
fine grad-scaler python train.py
