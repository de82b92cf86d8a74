"""Why a training run is slow: the classes of its stacks, the account of a step, causes with evidence, and a verdict.

Pure functions over records; what fills the records is in `gpumon.operations.why`.
"""
