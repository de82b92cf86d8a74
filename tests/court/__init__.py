"""Training runs with one known cause each, healthy ones, and the command that compares `gpumon why` with them."""
