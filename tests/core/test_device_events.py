"""Xids from the frame to the events of a device, and the cost of calls: through the codec, and anonymized."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.core.episodes import HistoryEventKind
from gpumon.core.frames import FrameError, decode, encode, to_document
from gpumon.core.model import CallCost, DeviceEvent, DeviceState, Sweep
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text
from gpumon.core.xids import XID_MEANINGS, xid_text
from gpumon.operations.record import Anonymizer
from tests.builders import device, frame
from tests.core.test_episodes import events_of

KEY = device(0).key
COUNT = st.integers(0, 1 << 50)
SECONDS = st.floats(0, 1e10)
NAME = st.text(max_size=40).map(safe_text)
EVENTS = st.lists(st.builds(DeviceEvent, NAME, st.integers(0, 999), SECONDS, SECONDS), max_size=3).map(tuple)
COSTS = st.lists(st.builds(CallCost, NAME, COUNT, COUNT, SECONDS, SECONDS), max_size=3).map(tuple)


def event(xid: int, seconds: float = 99.5, key: str = KEY) -> DeviceEvent:
    return DeviceEvent(key, xid, 1_800_000_000.0, seconds)


@settings(max_examples=12)
@given(events=EVENTS, costs=COSTS)
def test_round_trip(events: tuple[DeviceEvent, ...], costs: tuple[CallCost, ...]) -> None:
    original = frame(events=events, sweep=Sweep(0.1, 1, 0, 0, costs))
    assert decode(encode(original)) == original


def test_recordings_without_them_have_none() -> None:
    raw = to_document(frame())
    assert "calls_by_name" not in raw["sweep"], "frames stay small while no screen shows the costs"
    raw.pop("events", None)
    decoded = decode(json.dumps(raw))
    assert decoded.events == ()
    assert decoded.sweep.calls_by_name == ()


@pytest.mark.parametrize("wrong", [None, 7, [7], [{"device_key": "x"}], [{"device_key": 1, "xid": 2}]])
def test_what_is_no_event_is_a_frame_error(wrong: Any) -> None:  # noqa: ANN401
    raw = to_document(frame())
    raw["events"] = wrong
    with pytest.raises(FrameError):
        decode(json.dumps(raw))


def test_keys_and_names_are_made_safe() -> None:
    raw = to_document(frame(events=(event(13),), sweep=Sweep(0.1, 1, 0, 0, (CallCost("x", 1, 0, 0.1, 0.1),))))
    raw["events"][0]["device_key"] = raw["sweep"]["calls_by_name"][0]["call"] = "\x1b[2J\u202e"
    decoded = decode(json.dumps(raw))
    assert decoded.events[0].device_key.isprintable()
    assert decoded.sweep.calls_by_name[0].call.isprintable()


def test_an_xid_is_an_event_of_its_device_alone_at_the_moment_at_which_it_came() -> None:
    other = event(31, key=device(1).key)
    assert events_of(frame(events=(event(13), other, event(4711, 99.8))), frame(monotonic_seconds=101.0)) == [
        (99.5, HistoryEventKind.XID, "Xid 13: graphics engine exception"),
        (99.8, HistoryEventKind.XID, "Xid 4711"),
    ]


def test_the_cause_stands_before_what_follows_from_it() -> None:
    lost = device(0, state=DeviceState.LOST)
    result = events_of(frame(), frame(monotonic_seconds=101.0, devices=(lost,), events=(event(79, 100.5),)))
    assert [(kind, text) for _, kind, text in result] == [
        (HistoryEventKind.XID, "Xid 79: GPU has fallen off the bus"),
        (HistoryEventKind.DEVICE, "lost"),
    ]


def test_a_driver_that_was_restarted_is_one_event_and_one_that_stays_away_is_two() -> None:
    lost = device(0, state=DeviceState.LOST)
    restarted = {"driver": Problem(ProblemCode.DRIVER_RESTARTED, "The driver was restarted.")}
    gone = {"driver": Problem(ProblemCode.DRIVER_NOT_LOADED, "The driver is not loaded.")}
    first = frame(monotonic_seconds=1.0)
    hiccup = frame(monotonic_seconds=2.0, devices=(lost,), problems=restarted)
    outage = frame(monotonic_seconds=3.0, devices=(lost,), problems=gone)
    back = frame(monotonic_seconds=4.0)
    assert events_of(first, hiccup, back) == [(2.0, HistoryEventKind.DRIVER, "The driver was restarted.")]
    assert events_of(first, hiccup, outage, back) == [
        (2.0, HistoryEventKind.DRIVER, "The driver was restarted."),
        (4.0, HistoryEventKind.DRIVER, "the driver responds again"),
    ]


def test_a_device_that_is_lost_when_the_driver_is_back_is_an_event() -> None:
    lost = device(0, state=DeviceState.LOST)
    gone = {"driver": Problem(ProblemCode.DRIVER_NOT_LOADED, "The driver is not loaded.")}
    result = events_of(frame(), frame(monotonic_seconds=101.0, devices=(lost,), problems=gone),
                  frame(monotonic_seconds=102.0, devices=(lost,)))  # fmt: skip
    assert [kind for _, kind, _ in result] == [
        HistoryEventKind.DRIVER,
        HistoryEventKind.DEVICE,
        HistoryEventKind.DRIVER,
    ]


def test_every_meaning_fits_into_a_line() -> None:
    for number in XID_MEANINGS:
        assert len(xid_text(number)) <= 60
        assert not xid_text(number).endswith(".")


def test_an_event_does_not_tell_whose_gpu_it_was() -> None:
    uuid = device(0).uuid
    secret = frame(events=(event(79), event(13, key="GPU-of-somebody-who-has-gone"), event(31, key="index:5")))
    result = Anonymizer().apply(secret)
    assert [item.device_key for item in result.events] == [result.devices[0].key, "", "index:5"]
    assert uuid is not None
    assert uuid not in encode(result)
    assert "somebody" not in encode(result)
    assert replace(result.events[0], device_key=KEY) == secret.events[0]
