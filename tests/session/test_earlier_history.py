"""The history of this host before gpumon was opened."""

import time
from pathlib import Path

from gpumon.core.frames import encode
from gpumon.session.earlier_history import earlier_history
from gpumon.streams.ring import RingWriter
from tests.builders import device, frame


def test_the_history_is_that_of_the_last_hour_since_boot(tmp_path: Path) -> None:
    now, monotonic = time.time(), time.monotonic()
    writer = RingWriter(tmp_path, 7, 1e9, 0)
    for age, boot in ((7200.0, 0.0), (1000.0, 500.0), (30.0, 0.0), (20.0, 0.0)):
        moment = frame(
            time_seconds=now - age,
            monotonic_seconds=monotonic - age - boot,
            devices=(device(0, readings={"power_watts": age}),),
        )
        writer.start_era()
        writer.write(1, moment.time_seconds, encode(moment).encode() + b"\n")
    writer.close()
    store = earlier_history(tmp_path, 3600.0)
    assert store is not None
    assert store.frame is not None
    values = store.history(store.frame.devices[0].key, "power_watts", 3000)
    assert {value for value in values if value is not None} == {30.0, 20.0}
    assert earlier_history(tmp_path / "none", 3600.0) is None
