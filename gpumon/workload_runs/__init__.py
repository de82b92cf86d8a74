"""Running workloads: discovery, interpreter, process, events and results."""
