"""The checks of gpumon doctor, as pure functions of facts that are gathered elsewhere."""
