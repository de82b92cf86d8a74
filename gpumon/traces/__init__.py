"""Traces of Kineto and torch.profiler: read in a child with limits, and the account of a step."""
