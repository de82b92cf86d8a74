# The system ends the run or refuses something: usage errors, imports, disks, signals, networks.
. "$(dirname "$0")/lib.sh"
job() { put job.sh; fail "$1" bash job.sh; }
fresh; fail usage-unknown-option python train.py --learning-rate 1e-4 --epochs 3
fresh; fail usage-invalid-choice python train.py --device gpu
fresh; fail config-missing python train.py --config configs/base.json
fresh; echo '{"epochs": 3, "lr": 1e-4,}' > $WORK/base.json; fail config-broken python train.py --config base.json
fresh; sub train.py 's/^import torch$/import apex\n&/'; fail module-missing python train.py
fresh; sub train.py 's/^import torch$/&\nfrom transformers import AdamW/'; fail import-removed-name python train.py
fresh; sub data.py 's/^import torch$/from torch._six import string_classes\n&/'; fail torch-six python train.py
fresh; PRE='mount -t tmpfs -o size=700k,mode=1777 tmpfs /home/user/train/runs' ; mkdir $WORK/runs; fail disk-full python train.py --epochs 5
fresh; fail file-size-limit bash -c 'ulimit -f 60; exec python train.py --epochs 2'
fresh; mkdir -p $WORK/runs; PRE='mount -t tmpfs -o ro tmpfs /home/user/train/runs' fail read-only python train.py
fresh; mkdir -p $WORK/runs/exp1; chmod 555 $WORK/runs/exp1; chown root $WORK/runs/exp1; fail permission-denied python train.py
fresh; sub train.py 's/^( +)optimizer.step\(\)/&\n\1if step == 33:\n\1    os.kill(os.getpid(), 9)/'
job killed-137 <<'P'
#!/bin/bash
echo "[$(date '+%F %T')] job 48213 on $(hostname), $(nproc) cores"
python train.py --epochs 3
status=$?
echo "[$(date '+%F %T')] training exited with status $status"
exit $status
P
fresh; sub train.py 's/^( +)optimizer.step\(\)/&\n\1if step == 21:\n\1    import ctypes; ctypes.memset(8, 1, 8)/'
job segfault-139 <<'P'
export PYTHONFAULTHANDLER=1
python train.py || echo "exit code $?"
P
sub train.py 's/ctypes.memset\(8, 1, 8\)/ctypes.CDLL(None).abort()/'
job abort-134 <<'P'
python train.py; status=$?
echo "srun-wrapper: task 0: exit status $status"; exit $status
P
fresh; job sigterm-143 <<'P'
python train.py --epochs 50 &
child=$!
sleep 50; kill -TERM $child; wait $child
echo "exit code: $?"
P
fresh; sub train.py 's/^def main\(\):/def stop(number, frame):\n    raise SystemExit(f"received signal {number}, no time left to save")\n\n\n&\n    import signal; signal.signal(signal.SIGTERM, stop)/'
job sigterm-handler <<'P'
python train.py --epochs 50 &
sleep 50; kill -TERM %1; wait %1
P
fresh; job keyboard-interrupt <<'P'
set -m
python train.py --epochs 50 &
sleep 50; kill -INT %1; wait %1
P
fresh; put prepare.py <<'P'
import subprocess
print("tokenizing shard 0 of 4", flush=True)
subprocess.run(["bash", "-c", "echo tokenizer: reading corpus.jsonl; sleep 60"], timeout=3, check=True)
P
fail subprocess-timeout python prepare.py
fresh; put prepare.py <<'P'
import subprocess
for shard in range(4):
    print(f"packing shard {shard}", flush=True)
    subprocess.run(["tar", "czf", f"shard{shard}.tgz", "train.py" if shard < 2 else f"tokens{shard}.bin"], check=True)
P
fail subprocess-status python prepare.py
fresh; job command-missing <<'P'
set -euo pipefail
echo "loading modules"
source ./env.sh 2>/dev/null || echo "no env.sh, using defaults"
nvidia-smi --query-gpu=name --format=csv
python train.py
P
fresh; put download.py <<'P'
import logging, sys, time, urllib.request
logging.basicConfig(level=logging.INFO, format="%(levelname)s:%(name)s:%(message)s")
url = sys.argv[1]
for attempt in range(1, 4):
    try:
        print("fetched", len(urllib.request.urlopen(url, timeout=5).read()), "bytes")
        break
    except OSError as error:
        logging.warning("attempt %d of 3 for %s failed: %s", attempt, url, error)
        if attempt == 3:
            raise
        time.sleep(0.5)
P
fail dns python download.py https://data.example.invalid/shards/0000.tar
fail proxy-refused env https_proxy=http://127.0.0.1:3128 python -c 'import requests; requests.get("https://data.example.com/shards/0000.tar", timeout=5)'
put serve.py <<'P'
import http.server, ssl, sys
class Busy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(429, "Too Many Requests"); self.send_header("Retry-After", "30"); self.end_headers()
    def log_message(self, *args): pass
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Busy)
if sys.argv[2:]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); context.load_cert_chain("cert.pem", "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
P
job tls-self-signed <<'P'
openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=localhost > /dev/null 2>&1
python serve.py 8463 tls > /dev/null 2>&1 & sleep 3
python download.py https://localhost:8463/shards/0000.tar; status=$?
kill %1; exit $status
P
job http-429 <<'P'
python serve.py 8464 > /dev/null 2>&1 & sleep 3
python download.py http://localhost:8464/shards/0000.tar; status=$?
kill %1; exit $status
P
fresh; sub train.py 's/item\(\), args.lr,/item(), args.lr, step,/'; sub data.py 's/label = int.*/&\n        if index == 700:\n            label = self.names[label]/'; fail logging-error-then-crash python train.py --epochs 1
fresh; job time-limit <<'P'
echo "== job 7711 starts at $(date -u +%H:%M:%S), limit 60 s"
timeout --signal=TERM 60 python train.py --epochs 90
code=$?
[ $code = 124 ] && echo "== job 7711 exceeded its time limit of 60 s, terminated"
echo "== job 7711 exit code $code"
P
