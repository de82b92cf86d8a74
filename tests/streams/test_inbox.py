"""Frames that wait for a screen are limited by what they contain; those of a recording are all kept."""

from dataclasses import replace
from typing import Final

from gpumon.core.model import DeviceEvent, Frame
from gpumon.session.frame_session import FrameSession
from gpumon.streams.base import MAX_WAITING_READINGS, FrameInbox
from gpumon.streams.live import LiveStream
from tests import builders
from tests.ui.fakes import FakeLive, FakeRecording

PROCESSES: Final = 4_000
FRAMES: Final = 50
ROOM: Final = MAX_WAITING_READINGS // PROCESSES


def frames_of_many_processes() -> list[Frame]:
    device = builders.device(0, processes=tuple(builders.process(pid) for pid in range(1, PROCESSES + 1)))
    first = builders.frame(devices=(device,))
    return [
        replace(first, monotonic_seconds=float(second), events=(DeviceEvent(device.key, second, 0.0, float(second)),))
        for second in range(FRAMES)
    ]


def times(inbox: FrameInbox) -> list[float]:
    return [arrival.monotonic_seconds for arrival in inbox.drain() if isinstance(arrival, Frame)]


def test_the_newest_frames_wait_for_a_screen_and_the_dropped_ones_are_counted() -> None:
    inbox = FrameSession(FakeLive()).stream.inbox
    for frame in frames_of_many_processes():
        inbox.put(frame)
    assert inbox.lost == FRAMES - ROOM
    assert times(inbox) == list(range(FRAMES - ROOM, FRAMES))


def test_no_event_is_lost_with_a_frame() -> None:
    inbox = FrameSession(FakeLive()).stream.inbox
    for frame in frames_of_many_processes():
        inbox.put(frame)
    xids = [event.xid for arrival in inbox.drain() if isinstance(arrival, Frame) for event in arrival.events]
    assert sorted(xids) == list(range(FRAMES))


def test_a_frame_that_is_larger_than_the_limit_is_kept() -> None:
    inbox = FrameInbox()
    inbox.max_readings = 1
    for frame in frames_of_many_processes()[:3]:
        inbox.put(frame)
    assert times(inbox) == [2.0]


def test_a_recording_keeps_every_frame() -> None:
    for inbox in (LiveStream().inbox, FrameSession(FakeRecording()).stream.inbox):
        inbox.put(*frames_of_many_processes())
        assert inbox.lost == 0
        assert len(times(inbox)) == FRAMES
