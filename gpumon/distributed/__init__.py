"""Distributed training jobs: which processes of this host belong together, and what NCCL reports about their ranks."""
