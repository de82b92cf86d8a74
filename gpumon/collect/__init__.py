"""The collector process: reads NVML and /proc and writes one frame per line. No process waits for it."""
