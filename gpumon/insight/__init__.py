"""What is wrong with a host, a GPU, or a program, and how to fix it."""
