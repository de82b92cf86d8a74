"""Marks of workloads in the history of a device."""

from gpumon.core.store import Store
from tests import builders


def test_marks_move_on_and_end_with_their_history() -> None:
    store, key = Store(bucket_seconds=4.0), builders.device(0).key
    store.mark(key)
    assert store.marks(key, 10) == frozenset()
    store.apply(builders.frame(monotonic_seconds=100.0))
    store.mark(key)
    store.mark("an unknown device")
    assert store.marks(key, 10) == {9}
    store.apply(builders.frame(monotonic_seconds=112.0))
    assert store.marks(key, 10) == {6}
    assert store.marks(key, 3) == frozenset()
    assert store.marks(builders.device(1).key, 10) == frozenset()
    store.clear()
    assert store.marks(key, 10) == frozenset()
