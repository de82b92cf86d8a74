"""Running workloads: what there is, with which interpreter, in which process, and what came of it."""
