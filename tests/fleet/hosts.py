"""Hosts of a fleet with jobs, idle GPUs, slow GPUs and Xids, the same in every run."""

from tests.fleet.targets import FakeHost

_IDLE = {
    "DCGM_FI_DEV_GPU_UTIL": 0.0,
    "DCGM_FI_DEV_POWER_USAGE": 78.0,
    "DCGM_FI_DEV_SM_CLOCK": 345.0,
    "DCGM_FI_DEV_GPU_TEMP": 31.0,
}


def mixed_hosts(count: int) -> list[FakeHost]:
    """Hosts named ``node0000`` and so on; most work on jobs of four hosts."""
    return [_host(number) for number in range(count)]


def _host(number: int) -> FakeHost:
    host = FakeHost(f"node{number:04}")
    job = number // 4
    host.labels = {"hpc_job": str(4700 + job)}
    for gpu in range(host.gpus):
        load = 55 + (number * 7 + gpu * 13) % 45
        host.values["DCGM_FI_DEV_GPU_UTIL", gpu] = load
        host.values["DCGM_FI_DEV_POWER_USAGE", gpu] = 200 + 5.0 * load
        host.values["DCGM_FI_DEV_FB_USED", gpu] = 30000.0 + 1000 * load
        host.values["DCGM_FI_DEV_FB_FREE", gpu] = 140000.0 - host.values["DCGM_FI_DEV_FB_USED", gpu]
    if number % 4 == 3:  # a free host, with a notebook that was left open
        for gpu in range(host.gpus):
            host.values |= {(metric, gpu): value for metric, value in _IDLE.items()}
            host.values["DCGM_FI_DEV_FB_USED", gpu] = 52000.0 if gpu == 3 else 4.0
        host.labels = {}
    if number % 16 == 1:
        host.values["DCGM_FI_DEV_SM_CLOCK", 5] = 1155.0
    if number % 16 == 2:
        host.values["DCGM_FI_DEV_GPU_UTIL", 2] = 11.0
    if number % 64 == 6:
        host.values["DCGM_FI_DEV_XID_ERRORS", 1] = 79.0
    return host
