"""The collector process: reads NVML and /proc, writes one frame a line. It may hang or die; nobody waits for it."""
