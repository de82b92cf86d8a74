"""The examination behind gpumon doctor, on the screen and on the command line: it gathers facts and runs checks."""
