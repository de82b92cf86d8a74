"""Records, metrics, problems, history and the frame codec, shared by all packages. Standard library only."""
