"""What the recorder makes of frames: merged frames, and a log of the processes that used GPUs."""
