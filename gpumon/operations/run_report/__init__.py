"""The report of a run: what a recording, and the steps and memory that probes have shown, add up to."""
