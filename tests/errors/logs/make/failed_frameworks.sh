# transformers, Lightning, FastAPI, Hydra, compilers and pip, failing.
. "$(dirname "$0")/lib.sh"
. "$HERE/frameworks.sh"
h() { fresh; frameworks; sub finetune.py "${@:2}"; fail "$1" env HF_HUB_OFFLINE=1 python finetune.py; }
h hf-columns 's/"input_ids": \[/"text": [/'
h hf-label-range 's/i % 3 for i/i % 4 for i/'
h hf-eval-without-dataset 's/, eval_dataset=data.select\(range\(48\)\)//'
h hf-token-range 's/\(7 \* i \+ j\) % 120/(7 * i + j) % 130/'
h hf-lengths-differ 's/for j in range\(16\)/for j in range(16 + i % 2)/'
h hf-local-path 's/^model = .*/model = BertForSequenceClassification.from_pretrained(".\/checkpoints\/bert-small", num_labels=3)/'
h hf-offline 's/^model = .*/model = BertForSequenceClassification.from_pretrained("bert-base-uncased", num_labels=3)/'
h hf-removed-argument 's/use_cpu=True/use_cpu=True, warmup_ratio=0.1/'
h hf-bf16-argument 's/use_cpu=True/use_cpu=True, evaluation_strategy="steps"/'
l() { fresh; frameworks; sub lit.py "${@:2}"; fail "$1" python lit.py; }
l lightning-no-optimizer 's/def configure_optimizers/def make_optimizers/'
l lightning-training-step 's/^        x, y = batch$/        x, y = batch\n        if batch_index == 11: y = y.view(4, -1)/'
l lightning-gpu-missing 's/accelerator="cpu"/accelerator="gpu", devices=4/'
l lightning-bad-checkpoint 's/trainer.fit\(model, loader, val\)/torch.save({"epoch": 3}, "last.ckpt"); trainer.fit(model, loader, val, ckpt_path="last.ckpt")/'
v() { fresh; frameworks; sub serve.py "${@:2}"; fail "$1" uvicorn serve:app --port 8071; }
v uvicorn-startup 's/^    yield/    state["model"].load_state_dict(torch.load("\/home\/user\/models\/ranker-v3.pt"))\n&/'
v uvicorn-import 's/^from fastapi import/from fastapi.orjson import/'
fresh; frameworks; put job.sh <<'P'
python -m http.server 8071 --bind 127.0.0.1 > /dev/null 2>&1 & sleep 3
uvicorn serve:app --port 8071; status=$?
kill %1; exit $status
P
fail uvicorn-port-in-use bash job.sh
fresh; frameworks; sub serve.py 's/^def predict.*/&\n    if len(body.values) > 6: os._exit(9)/'; put job.sh <<'P'
uvicorn serve:app --port 8072 & sleep 35
bash requests.sh 8072 > /dev/null 2>&1
curl -s -X POST localhost:8072/predict -H 'content-type: application/json' -d '{"values": [1, 2, 3, 4, 5, 6, 7, 8]}' > /dev/null
wait %1; status=$?; echo "server exited with status $status"; exit $status
P
fail server-exits-after-errors bash job.sh
fresh; frameworks; sed -i 's/lr: 0.01/lr: fast/' $WORK/conf/config.yaml; fail hydra-value python hydra_train.py +model.depth=3
fail hydra-override python hydra_train.py optimizer.lr=0.1
b() { fresh; frameworks; sub ext.cpp "${@:2}"; fail "$1" python build_ext.py; }
b cpp-extension-compile-error 's/values.size\(\)/values.length()/'
b cpp-extension-undefined 's/^static int/void launch_kernel(const float *data, long n);\n&/' 's/^  std::map/  launch_kernel(data, n);\n&/'
fresh; frameworks; put job.sh <<'P'
( until pgrep -u user -x cc1plus > /dev/null; do sleep 0.1; done; kill -9 $(pgrep -u user -x cc1plus) ) &
python build_ext.py
P
fail cpp-compiler-killed bash job.sh
fresh; frameworks; put job.sh <<'P'
set -m
mkdir -p ~/.cache/torch_extensions/py311_cpu/check_ext && touch ~/.cache/torch_extensions/py311_cpu/check_ext/lock
python build_ext.py & sleep 90; kill -INT %1; wait %1; echo "exit status $?"
rm -r ~/.cache/torch_extensions
P
fail stale-lock-interrupted bash job.sh
fresh; frameworks; sub native/fast.c 's/long total = 0;//'; fail pip-build-fails pip install --no-build-isolation --no-index ./native
fail pip-no-match pip install --no-index torchlens==9.9
fresh; frameworks; sub kernels.c 's/restrict out/restrict uot/'; fail make-fails make -k all
fresh; frameworks; head -c 4000 /usr/lib/x86_64-linux-gnu/libm.so.6 > $WORK/_fast.so; sub data.py 's/^import os$/import _fast\n&/'; echo 'python train.py; echo "exit code $?"' > $WORK/job.sh; fail extension-truncated bash job.sh
fresh; frameworks; fail pip-bdist-wheel bash -c 'python -m venv env; env/bin/pip install -v --no-build-isolation --no-index ./native' # where wheel is missing
