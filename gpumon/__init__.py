"""gpumon: a diagnostic terminal monitor for NVIDIA GPU hosts that train PyTorch models."""

__version__ = "0.1.0"
