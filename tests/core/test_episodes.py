"""Reasons have a beginning and an end, and what happened is kept."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.episodes import Episode, Episodes, HistoryEventKind
from gpumon.core.model import DeviceState, Frame
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.store import Store
from tests.builders import device, frame

CAP = "sw_power_cap"
KEY = device(0).key


def seen(*moments: tuple[float, tuple[str, ...] | None]) -> Episodes:
    episodes = Episodes()
    for seconds, reasons in moments:
        episodes.add(seconds, reasons, 2.5)
    return episodes


def test_sightings_in_a_row_are_one_episode() -> None:
    episodes = seen((0, ()), (1, (CAP,)), (2, (CAP, "gpu_idle")), (3, (CAP,)), (4, ()), (5, (CAP,)))
    assert list(episodes.of(CAP)) == [Episode(1, 3), Episode(5, 5)]
    assert list(episodes.of("gpu_idle")) == [Episode(2, 2)]
    assert list(episodes) == [CAP, "gpu_idle"]
    assert list(episodes.of("never")) == []


def test_what_is_not_known_and_silence_end_an_episode() -> None:
    assert list(seen((0, (CAP,)), (1, None), (2, (CAP,))).of(CAP)) == [Episode(0, 0), Episode(2, 2)]
    assert list(seen((0, (CAP,)), (9, (CAP,))).of(CAP)) == [Episode(0, 0), Episode(9, 9)]


def test_an_episode_continues_up_to_the_patience_and_within_a_moment() -> None:
    assert list(seen((0, (CAP,)), (2.5, (CAP,))).of(CAP)) == [Episode(0, 2.5)]
    assert list(seen((0, (CAP,)), (2.6, (CAP,))).of(CAP)) == [Episode(0, 0), Episode(2.6, 2.6)]
    assert list(seen((1, (CAP,)), (1, (CAP,))).of(CAP)) == [Episode(1, 1)]
    assert list(seen((1, (CAP,)), (1.5, (CAP,))).of(CAP)) == [Episode(1, 1.5)]


def test_an_episode_that_ends_at_the_limit_is_kept() -> None:
    episodes = seen((0, (CAP,)), (1, (CAP,)))
    episodes.forget(1)
    assert list(episodes.of(CAP)) == [Episode(0, 1)]


def test_time_held_between_two_moments() -> None:
    episodes = seen(*((float(second), (CAP,)) for second in range(11)))
    assert episodes.held_seconds(CAP, 2.5, 7.5) == 5
    assert episodes.held_seconds(CAP, 20, 30) == 0
    episodes.forget(11)
    assert list(episodes) == []


@given(st.lists(st.tuples(st.floats(0, 5), st.none() | st.frozensets(st.sampled_from("abc"))), max_size=60))
def test_episodes_are_in_order_apart_and_of_moments_seen(steps: list[tuple[float, frozenset[str] | None]]) -> None:
    episodes, seconds, moments = Episodes(), 0.0, dict[str, list[float]]()
    for wait, reasons in steps:
        seconds += wait
        episodes.add(seconds, reasons, 2.5)
        for reason in reasons or ():
            moments.setdefault(reason, []).append(seconds)
    for reason, when in moments.items():
        held = list(episodes.of(reason))
        assert all(any(item.begin_seconds <= moment <= item.end_seconds for item in held) for moment in when)
        assert {edge for item in held for edge in item} <= set(when)
        assert all(first.end_seconds <= then.begin_seconds for first, then in pairwise(held))


def test_a_flood_of_reasons_is_bounded() -> None:
    episodes = Episodes()
    for number in range(5000):
        episodes.add(number, (f"made up {number}", CAP) if number % 2 else (), 2.5)
    assert len(list(episodes)) <= 32


def events_of(*frames: Frame) -> list[tuple[float, HistoryEventKind, str]]:
    store = Store()
    for item in frames:
        store.apply(item)
    history = store.of_device(KEY)
    assert history is not None
    return [(event.seconds, event.kind, event.text) for event in history.events]


def test_a_device_that_is_lost_and_comes_back_is_an_event() -> None:
    result = events_of(
        frame(monotonic_seconds=1.0),
        frame(monotonic_seconds=2.0, devices=(device(0, state=DeviceState.LOST),)),
        frame(monotonic_seconds=3.0, devices=(device(0, state=DeviceState.LOST),)),
        frame(monotonic_seconds=4.0),
    )
    assert result == [(2.0, HistoryEventKind.DEVICE, "lost"), (4.0, HistoryEventKind.DEVICE, "responds again")]


def test_a_driver_that_goes_and_comes_back_is_an_event_of_every_device() -> None:
    gone = {"driver": Problem(ProblemCode.DRIVER_NOT_LOADED, "The driver is gone.")}
    result = events_of(
        frame(monotonic_seconds=1.0),
        frame(monotonic_seconds=2.0, devices=(), problems=gone),
        frame(monotonic_seconds=3.0, devices=(), problems=gone),
        frame(monotonic_seconds=4.0),
    )
    assert result == [
        (2.0, HistoryEventKind.DRIVER, "The driver is gone."),
        (4.0, HistoryEventKind.DRIVER, "the driver responds again"),
    ]


def test_throttle_reasons_and_marks_are_remembered() -> None:
    store = Store()
    for second in range(5):
        store.apply(frame(monotonic_seconds=second, devices=(device(0, throttle_reasons=(CAP,)),)))
    store.mark(KEY, "matmul began")
    history = store.of_device(KEY)
    assert history is not None
    assert list(history.throttling.of(CAP)) == [Episode(0, 4)]
    assert [(event.kind, event.text) for event in history.events] == [(HistoryEventKind.WORKLOAD, "matmul began")]
    assert store.of_device("nobody") is None
