"""Where frames come from: this machine, a file, a pipe. The screen cannot tell them apart."""
