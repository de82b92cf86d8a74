"""Why a training run is slow: observes a process, and gathers the evidence for a verdict."""
