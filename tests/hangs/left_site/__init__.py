"""What a rank of a planted hang runs at its start."""
