"""A module that stands for torch where only what it says of GPUs counts."""


def fake_torch(gpus: int, uuid: str) -> str:
    """Its source, with some H200 GPUs of one UUID, of which torch leaves out the prefix."""
    return f"""
__version__ = "2.99.0+fake"
class version: cuda = "13.0"
class device:
    def __init__(self, name): self.type = name.partition(":")[0]
class _Properties:
    name, major, minor, multi_processor_count, total_memory, uuid = "NVIDIA H200", 9, 0, 132, 150 << 30, "{uuid[4:]}"
class cuda:
    init = set_device = staticmethod(lambda *_: None)
    device_count = staticmethod(lambda: {gpus})
    get_device_properties = staticmethod(lambda _: _Properties)
    get_arch_list = staticmethod(lambda: ["sm_90"])
    mem_get_info = staticmethod(lambda _: (140 << 30, 150 << 30))
    memory_stats_as_nested_dict = staticmethod(lambda _: {{"allocated_bytes": {{"all": {{"current": 5, "peak": 7}}}}}})
    memory_summary = staticmethod(lambda _: "summary")
"""
