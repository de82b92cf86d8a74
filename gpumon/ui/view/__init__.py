"""What the overview shows: frames and histories in, lines out. A value becomes text here and nowhere else."""
