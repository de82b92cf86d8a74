"""The books."""


def used(held):
    return sum(each["size"] for each in held.segments if each["used"])


def reserved(held):
    return sum(each["size"] for each in held.segments)


def _kinds(current, peak=0):
    return {"current": current, "peak": max(peak, current), "allocated": current, "freed": 0}


def _pools(current, peak=0):
    return {"all": _kinds(current, peak), "small_pool": _kinds(0), "large_pool": _kinds(current, peak)}


def stats(ordinal):
    from . import devices

    held = devices[ordinal]
    return {
        "num_alloc_retries": held.retries,
        "num_ooms": held.ooms,
        "num_device_alloc": len(held.segments),
        "num_device_free": 0,
        "allocated_bytes": _pools(used(held), held.peak),
        "reserved_bytes": _pools(reserved(held), held.reserved_peak),
        "active_bytes": _pools(used(held)),
        "inactive_split_bytes": _pools(0),
        "requested_bytes": _pools(used(held)),
        "segment": _pools(len(held.segments)),
        "allocation": _pools(len([each for each in held.segments if each["used"]])),
    }


def memory_snapshot():
    from . import devices

    return [
        {
            "device": ordinal,
            "address": each["address"],
            "total_size": each["size"],
            "stream": 0,
            "segment_type": "large",
            "segment_pool_id": (0, 0),
            "blocks": [
                {
                    "size": each["size"],
                    "requested_size": each["size"],
                    "state": "active_allocated" if each["used"] else "inactive",
                }
            ],
        }
        for ordinal, held in enumerate(devices)
        for each in held.segments
    ]


def memory_summary(ordinal):
    return f"| PyTorch CUDA memory summary, device ID {ordinal} |\n"
