"""How gpumon is packaged."""
