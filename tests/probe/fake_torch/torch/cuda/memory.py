"""The statistics of the fake allocator."""


def used(state):
    return sum(segment["size"] for segment in state.segments if segment["used"])


def reserved(state):
    return sum(segment["size"] for segment in state.segments)


def _kinds(current, peak=0):
    return {"current": current, "peak": max(peak, current), "allocated": current, "freed": 0}


def _pools(current, peak=0):
    return {"all": _kinds(current, peak), "small_pool": _kinds(0), "large_pool": _kinds(current, peak)}


def stats(ordinal):
    from . import devices

    state = devices[ordinal]
    return {
        "num_alloc_retries": state.retries,
        "num_ooms": state.ooms,
        "num_device_alloc": len(state.segments),
        "num_device_free": 0,
        "allocated_bytes": _pools(used(state), state.peak),
        "reserved_bytes": _pools(reserved(state), state.reserved_peak),
        "active_bytes": _pools(used(state)),
        "inactive_split_bytes": _pools(0),
        "requested_bytes": _pools(used(state)),
        "segment": _pools(len(state.segments)),
        "allocation": _pools(len([segment for segment in state.segments if segment["used"]])),
    }


def memory_snapshot():
    from . import devices

    return [
        {
            "device": ordinal,
            "address": segment["address"],
            "total_size": segment["size"],
            "stream": 0,
            "segment_type": "large",
            "segment_pool_id": (0, 0),
            "blocks": [
                {
                    "size": segment["size"],
                    "requested_size": segment["size"],
                    "state": "active_allocated" if segment["used"] else "inactive",
                }
            ],
        }
        for ordinal, state in enumerate(devices)
        for segment in state.segments
    ]


def memory_summary(ordinal):
    return f"| PyTorch CUDA memory summary, device ID {ordinal} |\n"
