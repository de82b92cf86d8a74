"""Python stacks: where a frame is (program, torch, library, standard library), and what a thread does in a stack.

The tables are data; everything that gpumon says of a frame, whether from the probe, a trace or a snapshot, comes from
here. Standard library only, because the reader of traces imports it.
"""
