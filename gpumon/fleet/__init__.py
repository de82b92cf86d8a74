"""Many hosts: what Prometheus knows about their GPUs, read by a child process."""
