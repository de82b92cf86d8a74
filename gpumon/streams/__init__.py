"""Sources of frames: this host, a file, a pipe. The screen treats all sources alike."""
