"""An array of another library and a tensor that share their memory, without a copy."""

import importlib

import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
name = "cupy" if device == "cuda" else "numpy"
try:
    library = importlib.import_module(name)
except ImportError:
    raise SystemExit(f"Needs {name}.") from None
tensor = torch.ones(4, device=device)
array = library.from_dlpack(tensor)
tensor[0] = 7
print(f"{name} sees the write: {array}")
back = torch.from_dlpack(array)
back += 1
print(f"torch sees the write: {tensor}")
print(f"the same memory: {back.data_ptr() == tensor.data_ptr()}")
print(f"the same memory after clone(): {back.clone().data_ptr() == tensor.data_ptr()}")
