"""What a hang left: flight recorders, logs, stacks and RAS reports in files, judged like a job that runs."""
