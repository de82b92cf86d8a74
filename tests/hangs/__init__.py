"""Jobs that hang on purpose, and jobs that do not: what gpumon says of each."""
