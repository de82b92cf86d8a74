"""Processes with a probe that ran out of memory: a notice for each file that their probes wrote, and their alerts."""

from __future__ import annotations

import time
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from gpumon.health.alerts import DeviceFinding, oom_finding
from gpumon.session.view_state import OomNotice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gpumon.core.model import Frame
    from gpumon.operations.oom_files import OomDevice
    from gpumon.session.background import RunInBackground

OOM_ALERT_SECONDS: Final = 3600.0
"""How long a process that ran out of memory is an alert, unless it runs out of memory again."""
_MAX_NOTICES: Final = 20
_MAX_PATHS: Final = 1000
"""More than the files that the probes of one host report at one time."""
_MAX_FILE_AGE_SECONDS: Final = 120.0


class OomNotices:
    """Which processes ran out of memory, on which device.

    Args:
        device_key_of: Returns the key of the device, by the PID and what the file says about the device.
        on_notice: Called when there is a new notice.
        in_background: Runs what may take long, such as reading a file.

    Attributes:
        notices: The newest last.
    """

    def __init__(
        self,
        device_key_of: Callable[[int, OomDevice | None], str | None],
        on_notice: Callable[[], None],
        in_background: RunInBackground,
    ) -> None:
        self.notices: list[OomNotice] = []
        self._paths: dict[str, None] = {}
        """Every file whose notice exists or is being made, oldest first."""
        self._device_key_of = device_key_of
        self._on_notice = on_notice
        self._in_background = in_background

    def add(self, pid: int, paths: Iterable[str]) -> None:
        """Read which device each new file of a process is about, and make its notice."""
        from gpumon.core.oom_file import parse_oom_name  # late, as below: the first values must not wait for it
        from gpumon.operations.oom_files import oom_device

        for path in paths:
            name = parse_oom_name(PurePath(path).name)
            if name is None or path in self._paths:
                continue
            self._paths[path] = None
            if len(self._paths) > _MAX_PATHS:
                del self._paths[next(iter(self._paths))]
            notice = OomNotice(pid, path, float(name.time_seconds), name.number)
            self._in_background(partial(oom_device, path), partial(self._add, notice))

    def findings(self, frame: Frame) -> Iterator[DeviceFinding]:
        """What the alerts report at the moment of a frame: the newest notice of each process on each device."""
        devices = {device.key: device for device in frame.devices}
        for notice in {(notice.pid, notice.device_key): notice for notice in self.notices}.values():
            age_seconds = max(0.0, frame.time_seconds - notice.time_seconds)
            device = devices.get(notice.device_key or "")
            if age_seconds <= OOM_ALERT_SECONDS and (device is not None or notice.device_key is None):
                yield device, oom_finding(device, notice.pid, notice.number, notice.path, age_seconds)

    def _add(self, notice: OomNotice, device: OomDevice | None) -> None:
        self.notices.append(notice._replace(device_key=self._device_key_of(notice.pid, device)))
        self.notices.sort(key=lambda one: one.time_seconds)
        del self.notices[:-_MAX_NOTICES]
        self._on_notice()


def recent_oom_files(own_pid: int) -> list[str]:
    """The files that a process wrote just now on running out of memory, by the PID under which it sees itself."""
    from gpumon.core.oom_file import parse_oom_name
    from gpumon.operations.oom_files import oom_files

    oldest = time.time() - _MAX_FILE_AGE_SECONDS
    named_files = ((path, parse_oom_name(path.name)) for path in oom_files())
    return [str(path) for path, name in named_files if name and name.pid == own_pid and name.time_seconds >= oldest]
