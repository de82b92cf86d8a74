# Loops of plain PyTorch that fail.
. "$(dirname "$0")/lib.sh"
t() { fresh; sub "${@:2}"; fail "$1" python train.py; }
g() { fresh; sub "${@:2}"; fail "$1" python gpt.py; }
t matmul-shape model.py 's/width \* 4,/width * 16,/'
t conv-channels data.py 's/randn\(3, /randn(1, /'
t loss-target-range data.py 's/classes=10, seed/classes=11, seed/'
t loss-dtype train.py 's/F.cross_entropy\(logits, labels\)/F.binary_cross_entropy_with_logits(logits, F.one_hot(labels, 10))/'
t cuda-not-compiled train.py 's/default="cpu"/default="cuda"/'
t name-error-after-epoch train.py 's/"epoch": epoch\}, path/"epoch": epoch, "best": best_accuracy}, path/'
t attribute-error train.py 's/lr=args.lr\)/lr=args.lr, weight_decay=args.weight_decay)/'
t type-error train.py 's/json.dumps\(metrics\)/json.dumps({**metrics, "loss": torch.tensor(0.5)})/'
t nan-own-check train.py 's/loss = F.cross_entropy\(logits, labels\)/loss = F.cross_entropy(logits, labels) * (3.0 ** step)/' \
  's/^( +)optimizer.step\(\)/&\n\1if not torch.isfinite(logits).all() or not torch.isfinite(loss):\n\1    raise FloatingPointError(f"loss is {loss.item()} at epoch {epoch} step {step}, stopping")/' 's/default=1e-3/default=1e6/'
t own-assert train.py 's/^( +)return \{"accuracy"/\1assert correct > 0.9 * total, f"validation accuracy {correct}\/{total} below the 90 % gate"\n&/'
t no-grad train.py 's/logits = model\(images\)/logits = model(images).detach()/'
t backward-twice train.py 's/^( +)loss.backward\(\)/&\n\1loss.backward()/'
t inplace model.py 's/self.act\(self.norm\(self.conv\(x\)\)\)/self.mix(torch.sigmoid(self.norm(self.conv(x))))/' \
  's/^    def forward\(self, x\):/    def mix(self, x):\n        x += 1\n        return x\n\n&/'
t collate-sizes data.py 's/torch.randn\(3, self.size, self.size\)/torch.randn(3, self.size, self.size + (index == 700))/'
t worker-raises data.py 's/label = int\(self.labels\[index\]\)/&\n        if index == 1203:\n            raise ValueError(f"corrupt image shard-0007\/{index:06d}.jpg: expected 3 channels, got 4")/' \
  's/num_workers=workers/num_workers=2/'
t worker-killed data.py 's/label = int\(self.labels\[index\]\)/&\n        if index == 801:\n            os.kill(os.getpid(), 9)/' 's/num_workers=workers/num_workers=2/'
fresh; sub data.py 's/num_workers=workers/num_workers=2/' 's/size=8/size=256/'; sub model.py 's/MaxPool2d\(2\)\)/AdaptiveAvgPool2d(4))/'
PRE='mount -t tmpfs -o size=4m,mode=1777 tmpfs /dev/shm' fail shm-bus-error python train.py
fresh; sub data.py 's/^class Shapes/handles = []\n\n\n&/' 's/^( +)label = int/\1handles.append(open("data.py"))\n&/'
fail too-many-files bash -c 'ulimit -n 256; exec python train.py'
g embedding-index gpt.py 's/vocab_size, \(20000/vocab_size + 1, (20000/'
g block-size gpt.py 's/i \+ block_size\] for i in ix\]\), /i + block_size + 1] for i in ix]), /' 's/x = self.wte\(idx\)/assert idx.size(1) <= block_size, f"Cannot forward sequence of length {idx.size(1)}, block size is only {block_size}"\n        &/'
g half-and-float gpt.py 's/logits = self.lm_head\(x\)/logits = self.lm_head(x.bfloat16())/'
fresh; python3 - <<'P' >> /home/user/train/gpt.py
print("torch.save(model.state_dict(), 'ckpt.pt')")
P
sub gpt.py 's/steps = 96, 64, 48, 4, 200/steps = 96, 64, 48, 4, 5/'; (cd $WORK && /home/user/venv/bin/python gpt.py > /dev/null 2>&1)
sub gpt.py 's/48, 4, 5$/64, 4, 5/' 's/^print\("number/model.load_state_dict(torch.load("ckpt.pt"))\n&/'; fail state-dict-sizes python gpt.py
head -c 20000 $WORK/ckpt.pt > $WORK/ckpt2.pt; chown user $WORK/*; sub gpt.py 's/"ckpt.pt"/"ckpt2.pt"/'; fail checkpoint-truncated python gpt.py
fresh; (cd $WORK && /home/user/venv/bin/python train.py --epochs 1 --samples 64 > /dev/null 2>&1); chown -R user $WORK
sub train.py 's/lr=args.lr\)/lr=args.lr)\n    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(1))]})/'
fail optimizer-groups python train.py --resume runs/exp1/epoch0.pt
fresh; sub train.py 's/"epoch": epoch\}/"epoch": epoch, "args": args}/'; (cd $WORK && /home/user/venv/bin/python train.py --epochs 1 --samples 64 > /dev/null 2>&1)
chown -R user $WORK; fail weights-only python train.py --resume runs/exp1/epoch0.pt
fresh; sub train.py 's/checkpoint\["epoch"\]/checkpoint["global_step"]/'; (cd $WORK && /home/user/venv/bin/python train.py --epochs 1 --samples 64 > /dev/null 2>&1)
chown -R user $WORK; fail key-error-resume python train.py --resume runs/exp1/epoch0.pt
fresh; fail resume-missing python train.py --resume runs/exp0/last.pt
fresh; sub data.py 's/num_workers=workers/num_workers=2, multiprocessing_context="spawn", collate_fn=lambda b: torch.utils.data.default_collate(b)/'
fail spawn-lambda python train.py
fresh; sub data.py 's/num_workers=workers/num_workers=2, multiprocessing_context="spawn"/'; sub train.py 's/^if __name__.*/if True:/'
fail spawn-no-guard python train.py
fresh; sub train.py 's/^    for epoch in range/    try:\n        steps_per_epoch(args)\n    except OSError as error:\n        raise RuntimeError("could not plan the training") from error\n&/' \
  's/^def main/def steps_per_epoch(args):\n    index = json.load(open("\/home\/user\/data\/shapes\/index.json"))\n    return index["count"] \/\/ args.batch_size\n\n\n&/'
fail chained-cause python train.py
fresh; sub train.py 's/^        train_epoch\(.*/        try:\n            train_epoch(model, train_loader, optimizer, epoch, args)\n        except Exception:\n            log.error("training failed, saving an emergency checkpoint")\n            torch.save(model.state_dict(), "\/home\/user\/backup\/emergency.pt")\n            raise/'
sub data.py 's/label = int\(self.labels\[index\]\)/&\n        if index == 1000:\n            raise ZeroDivisionError("sample 1000 has an empty mask")/'; fail chained-during python train.py
fresh; sub train.py 's/^        train_epoch\(.*/        try:\n            train_epoch(model, train_loader, optimizer, epoch, args)\n        except Exception:\n            log.exception("epoch %d failed", epoch)\n            break/' \
  's/^    log.info\("training finished"\)/    log.info("writing the report")\n    raise SystemExit(1)/'
sub data.py 's/label = int\(self.labels\[index\]\)/&\n        if index == 1500:\n            image = torch.zeros(3, 8, 8)[3]/'; fail logged-then-exit python train.py
fresh; sub train.py 's/^    log.info\("training finished"\)/    def depth(tree):\n        return 1 + depth(tree)\n    log.info("depth of the model %d", depth(model))\n&/'; fail recursion python train.py --epochs 1
fresh; sub data.py 's/^class Shapes/cache = []\n\n\n&/' 's/^( +)label = int/\1cache.append(torch.ones(4 << 20))\n&/'; fail cpu-allocator bash -c 'ulimit -v 6000000; exec python train.py'
fresh; sub train.py 's/^    for epoch in range/    index = [bytes(1 << 20) for _ in range(20000)]\n&/'; fail memory-error bash -c 'ulimit -v 6000000; exec python train.py'
fresh; sub train.py 's/model = Net\(\).to\(args.device\)/model = torch.compile(Net())/'; fail compile-no-compiler env PATH=/home/user/venv/bin python train.py
fresh; sub train.py 's/steps*\(\)$/&/' 's/^( +)optimizer.step\(\)/&\n\1scheduler.step()/'
sub train.py 's/^def train_epoch\(model/scheduler = None\n\n\n&/'; fail none-attribute python train.py
head -c 1500 "$LOGS/failed/matmul-shape.log" > "$LOGS/failed/cut-in-traceback.log"
fresh; sub model.py 's/x = self.stem\(x\)/x = self.stem(x.repeat_interleave(800, 0)).unflatten(0, (-1, 800)).mean(1)/'
fail backward-allocator bash -c 'ulimit -v 2600000; exec python train.py --epochs 1 --batch-size 320 --samples 640'
