"""An error that PyTorch raises, its text, and the fix."""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
images = torch.randn(8, 3, 16, 16, device=device)
model = nn.Sequential(nn.Flatten(), nn.Linear(512, 10)).to(device)
try:
    model(images)
except RuntimeError as error:
    print(f"wrong: {error}")
model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 10)).to(device)  # the size that Flatten returns
print(f"fixed: {tuple(model(images).shape)}")
