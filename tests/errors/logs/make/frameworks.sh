# Programs of the frameworks, small models with random weights.
frameworks() { cd "$WORK"; mkdir -p conf native
cat > finetune.py <<'P'
import datasets
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
data = datasets.Dataset.from_dict({
    "input_ids": [[(7 * i + j) % 120 for j in range(16)] for i in range(192)],
    "labels": [i % 3 for i in range(192)],
})
config = BertConfig(vocab_size=120, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                    max_position_embeddings=32, num_labels=3)
model = BertForSequenceClassification(config)
args = TrainingArguments("out", num_train_epochs=1, per_device_train_batch_size=8, logging_steps=5, eval_strategy="steps", eval_steps=10,
                         save_steps=20, report_to=[], use_cpu=True)
trainer = Trainer(model=model, args=args, train_dataset=data, eval_dataset=data.select(range(48)))
result = trainer.train()
print(result.metrics)
P
cat > lit.py <<'P'
import torch
import lightning as L
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from data import make_loader
from model import Net
class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()
    def training_step(self, batch, batch_index):
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.net(x), y)
        self.log("train_loss", loss)
        return loss
    def validation_step(self, batch, batch_index):
        x, y = batch
        self.log("val_loss", torch.nn.functional.cross_entropy(self.net(x), y))
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)
model = Classifier()
loader, val = make_loader(320, 16, 0), make_loader(64, 16, 0, seed=1)
callbacks = [ModelCheckpoint(monitor="val_loss"), EarlyStopping("val_loss", patience=2)]
trainer = L.Trainer(max_epochs=2, accelerator="cpu", callbacks=callbacks, logger=False)
trainer.fit(model, loader, val)
P
cat > serve.py <<'P'
import os
from contextlib import asynccontextmanager
import torch
from fastapi import FastAPI
from pydantic import BaseModel
state = {}
@asynccontextmanager
async def lifespan(app):
    state["model"] = torch.nn.Linear(4, 2)
    yield
app = FastAPI(lifespan=lifespan)
class Body(BaseModel):
    values: list[float]
@app.get("/health")
def health():
    return {"status": "ok"}
@app.post("/predict")
def predict(body: Body):
    return {"scores": state["model"](torch.tensor(body.values)).tolist()}
P
cat > requests.sh <<'P'
post() { curl -s -X POST "localhost:$1/predict" -H 'content-type: application/json' -d "$2"; }
for round in 1 2 3; do
  curl -s "localhost:$1/health"; post "$1" '{"values": [1, 2, 3, 4]}'; curl -s "localhost:$1/favicon.ico"
  post "$1" '{"values": "many"}'; post "$1" '{"values": [1, 2, 3, 4, 5]}'; post "$1" '{"values": [0, 0, 0, 1]}'
done
P
cat > hydra_train.py <<'P'
import hydra
import logging
log = logging.getLogger(__name__)
@hydra.main(config_path="conf", config_name="config", version_base=None)
def main(cfg):
    log.info("optimizer %s, model %s", cfg.optim, cfg.model)
    steps = int(cfg.train.steps)
    for step in range(steps):
        log.info("step %d error %.4f", step, 1 / (1 + step * float(cfg.optim.lr)))
if __name__ == "__main__":
    main()
P
printf 'optim:\n  name: adamw\n  lr: 0.01\nmodel:\n  width: 64\ntrain:\n  steps: 12\n' > conf/config.yaml
cat > ext.cpp <<'P'
#include <map>
#include <string>
#include <vector>
static int error_count(const std::vector<float> &values) {
  int errors = 0, unused;
  for (unsigned i = 0; i < values.size(); i++) errors += values[i] != values[i];
  return errors;
}
extern "C" int check(const float *data, long n) {
  std::map<std::string, int> names = {{"nan", 1}};
  return error_count(std::vector<float>(data, data + n)) * names["nan"];
}
P
cat > build_ext.py <<'P'
import ctypes
import torch
from torch.utils.cpp_extension import load
print("building the extension", flush=True)
path = load(name="check_ext", sources=["ext.cpp"], extra_cflags=["-O1", "-Wall"], verbose=True, is_python_module=False)
values = torch.tensor([1.0, float("nan")])
print("nan values:", ctypes.CDLL(path).check(ctypes.c_void_p(values.data_ptr()), 2))
P
cat > native/setup.py <<'P'
from setuptools import Extension, setup
setup(name="fasttok", version="0.3.1", ext_modules=[Extension("fasttok", ["fast.c"])])
P
cat > native/fast.c <<'P'
#include <Python.h>
static PyObject *count(PyObject *self, PyObject *args) {
  const char *text;
  long total = 0;
  int spare;
  if (!PyArg_ParseTuple(args, "s", &text)) return NULL;
  for (; *text; text++) total += *text == ' ';
  return PyLong_FromLong(total);
}
static PyMethodDef methods[] = {{"count", count, METH_VARARGS, NULL}, {NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "fasttok", NULL, -1, methods};
PyMODINIT_FUNC PyInit_fasttok(void) { return PyModule_Create(&module); }
P
cat > kernels.c <<'P'
#include <stdio.h>
void relu(const float *in, float *restrict out, int n) {
  unsigned error_count = 0;
  for (unsigned i = 0; i < n; i++) out[i] = in[i] > 0 ? in[i] : 0;
  printf("%d errors\n", 0L);
}
P
printf 'CFLAGS = -O2 -Wall -Wextra -fPIC\nall: libkernels.so error_table.o\nlibkernels.so: kernels.o\n\t$(CC) -shared -o $@ $^\nerror_table.o: error_table.c\n' > Makefile
echo 'const char *error_names[] = {"no error", "out of memory", "device lost"}; static int error_count;' > error_table.c
chown -R user:user "$WORK"; cd - > /dev/null; }
