# Writes the base programs into the current folder; each case changes a few words of one of them.
cat > model.py <<'P'
import torch
from torch import nn
class Block(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, padding=1)
        self.norm = nn.BatchNorm2d(cout)
        self.act = nn.ReLU()
    def forward(self, x):
        return self.act(self.norm(self.conv(x)))
class Net(nn.Module):
    def __init__(self, classes=10, width=8):
        super().__init__()
        self.stem = Block(3, width)
        self.body = nn.Sequential(Block(width, 2 * width), nn.MaxPool2d(2), Block(2 * width, 4 * width), nn.MaxPool2d(2))
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(4 * width * 4, 64), nn.ReLU(), nn.Linear(64, classes))
    def forward(self, x):
        x = self.stem(x)
        x = self.body(x)
        return self.head(x)
P
cat > data.py <<'P'
import os
import torch
from torch.utils.data import DataLoader, Dataset
class Shapes(Dataset):
    def __init__(self, count, size=8, classes=10, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, classes, (count,), generator=generator)
        self.size = size
    def __len__(self):
        return len(self.labels)
    def __getitem__(self, index):
        label = int(self.labels[index])
        image = torch.randn(3, self.size, self.size) + label / 10
        return image, label
def make_loader(count, batch_size, workers, seed=0):
    return DataLoader(Shapes(count, seed=seed), batch_size=batch_size, num_workers=workers, drop_last=True)
P
cat > train.py <<'P'
import argparse
import json
import logging
import os
import time
from pathlib import Path
import torch
import torch.nn.functional as F
from data import make_loader
from model import Net
log = logging.getLogger("train")
def parse_args():
    parser = argparse.ArgumentParser(description="Train a classifier")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--samples", type=int, default=1600)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/exp1"))
    parser.add_argument("--resume", type=Path)
    return parser.parse_args()
def train_epoch(model, loader, optimizer, epoch, args):
    model.train()
    start = time.time()
    for step, (images, labels) in enumerate(loader):
        images, labels = images.to(args.device), labels.to(args.device)
        logits = model(images)
        loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            log.info("epoch %d step %4d loss %.4f lr %.2e %.0f img/s", epoch, step, loss.item(), args.lr,
                     args.batch_size * (step + 1) / (time.time() - start))
@torch.no_grad()
def evaluate(model, loader, args):
    model.eval()
    correct = total = 0
    for images, labels in loader:
        prediction = model(images.to(args.device)).argmax(1)
        correct += (prediction == labels.to(args.device)).sum().item()
        total += len(labels)
    return {"accuracy": correct / total, "error_rate": 1 - correct / total}
def save(model, optimizer, epoch, args):
    path = args.out / f"epoch{epoch}.pt"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, path)
    log.info("saved checkpoint %s", path)
def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if args.config:
        vars(args).update(json.loads(args.config.read_text()))
    log.info("PyTorch %s, arguments %s", torch.__version__, vars(args))
    torch.manual_seed(0)
    args.out.mkdir(parents=True, exist_ok=True)
    model = Net().to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    log.info("model has %.2f M parameters", sum(p.numel() for p in model.parameters()) / 1e6)
    first = 0
    if args.resume:
        checkpoint = torch.load(args.resume, map_location=args.device)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        first = checkpoint["epoch"] + 1
        log.info("resumed from %s at epoch %d", args.resume, first)
    train_loader = make_loader(args.samples, args.batch_size, args.workers)
    val_loader = make_loader(320, args.batch_size, args.workers, seed=1)
    for epoch in range(first, first + args.epochs):
        train_epoch(model, train_loader, optimizer, epoch, args)
        metrics = evaluate(model, val_loader, args)
        log.info("epoch %d: val %s", epoch, json.dumps(metrics))
        save(model, optimizer, epoch, args)
    log.info("training finished")
if __name__ == "__main__":
    main()
P
cat > gpt.py <<'P'
import math, sys, time
import torch, torch.nn as nn
from torch.nn import functional as F
from tqdm import tqdm
vocab_size, block_size, n_embd, n_head, steps = 96, 64, 48, 4, 200
device = 'cpu'
corpus = torch.randint(0, vocab_size, (20000,))
print(f"tokens per iteration will be: {8 * block_size:,}")
class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)
    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(n_embd, dim=2)
        q, k, v = (t.view(B, T, n_head, C // n_head).transpose(1, 2) for t in (q, k, v))
        att = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        att = att.masked_fill(torch.tril(torch.ones(T, T)) == 0, float('-inf'))
        y = F.softmax(att, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))
class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.attn = SelfAttention()
        self.lm_head = nn.Linear(n_embd, vocab_size)
    def forward(self, idx, targets):
        pos = torch.arange(0, idx.size(1))
        x = self.wte(idx) + self.wpe(pos)
        x = x + self.attn(x)
        logits = self.lm_head(x)
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
def get_batch():
    ix = torch.randint(len(corpus) - block_size - 1, (8,))
    return torch.stack([corpus[i:i + block_size] for i in ix]), torch.stack([corpus[i + 1:i + 1 + block_size] for i in ix])
model = GPT().to(device)
print("number of parameters: %.2fM" % (sum(p.numel() for p in model.parameters()) / 1e6,))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
bar = tqdm(range(steps), desc='training', mininterval=0.5)
for it in bar:
    x, y = get_batch()
    loss = model(x, y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    bar.set_postfix(loss=f'{loss.item():.3f}')
    if it % 50 == 0:
        print(f"iter {it}: loss {loss.item():.4f}, time {time.perf_counter() * 1000 % 100:.2f}ms, mfu -100.00%")
print("done")
P
cat > ddp.py <<'P'
import datetime
import os
import sys
import time
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from data import make_loader
from model import Net
def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"[rank {rank}] started, world size {world}", flush=True)
    torch.manual_seed(0)
    model = DDP(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = make_loader(640, 16, 0, seed=rank)
    for step, (images, labels) in enumerate(loader):
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        if rank == 0 and step % 5 == 0:
            print(f"step {step} mean loss {total.item() / world:.4f}", flush=True)
    dist.barrier()
    if rank == 0:
        print("training done", flush=True)
    dist.destroy_process_group()
if __name__ == "__main__":
    main()
P
