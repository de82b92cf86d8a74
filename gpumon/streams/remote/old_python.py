"""The reduced collector, for a host whose newest Python is 3.6 to 3.9: what the tables below name, read with ctypes.

Its text travels through ssh and is run in memory; it imports the standard library only, and nothing of gpumon. It
writes the frames of `gpumon.core.frames`, without MIG instances, activity, rates and events. It calls NVML in one
thread, so that one GPU that hangs silences the host. It ends with its standard input. Names, codes and sentences are
those of `gpumon.collect`; a test compares them.
"""
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs

import ctypes
import json
import os
import platform
import pwd
import struct
import sys
import threading
import time
from functools import partial

SCHEMA = 1
"""Schema of the frames; gpumon reads no other."""
UINT, INT, ULONG = ctypes.c_uint, ctypes.c_int, ctypes.c_ulonglong
SLOW = 10.0
PERIODS = {"each": 0.0, "slow": SLOW, "once": 1e12}
"""Seconds between two reads of a value."""
RETRY_SECONDS = 60.0
"""Time until a call that the GPU or its driver does not support is made again."""
LINKS = 18
NOT_AVAILABLE = 2**64 - 1
"""NVML_VALUE_NOT_AVAILABLE of a process's memory."""
CLOCK_BOOTTIME = 7
"""Python 3.6 has no name for it."""
TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PID_NAMESPACE = "pid:[4026531836]"
"""The initial PID namespace, where NVML's PIDs are those of /proc."""


def _structure(name, *fields):
    return type(name, (ctypes.Structure,), {"_fields_": fields})


FOUR_SIZES = (("total", ULONG), ("reserved", ULONG), ("free", ULONG), ("used", ULONG))
MemoryV2 = _structure("MemoryV2", ("version", UINT), *FOUR_SIZES)
"""nvmlMemory_v2_t; the version is its size with 2 in the highest byte."""
Memory = _structure("Memory", ("total", ULONG), ("free", ULONG), ("used", ULONG))
"""nvmlMemory_t, which counts reserved memory as used, and nvmlBAR1Memory_t."""
Rates = _structure("Rates", ("gpu", UINT), ("memory", UINT))
"""nvmlUtilization_t."""
PciInfo = _structure("PciInfo", ("legacy", ctypes.c_char * 16), ("numbers", UINT * 5), ("bus_id", ctypes.c_char * 32))
FIELD_HEAD = (("field", UINT), ("scope", UINT), ("times", ULONG * 2), ("type", UINT), ("code", UINT))
FieldValue = _structure("FieldValue", *FIELD_HEAD, ("value", ctypes.c_ubyte * 8))
"""nvmlFieldValue_t, with the union as bytes."""
ProcessInfo = _structure("ProcessInfo", ("pid", UINT), ("memory", ULONG), ("instances", UINT * 2))
"""nvmlProcessInfo_t since version 2."""

TYPES = {"uint": [UINT], "two": [UINT] * 2, "four": [UINT] * 4, "rates": [Rates], "memory": [Memory], "v2": [MemoryV2]}
READERS = """
nvmlDeviceGetMemoryInfo_v2 - v2 1 each memory_total_bytes memory_reserved_bytes memory_free_bytes memory_used_bytes
nvmlDeviceGetMemoryInfo - memory 1 each memory_total_bytes memory_free_bytes memory_used_bytes
nvmlDeviceGetUtilizationRates - rates 1 each utilization_gpu_percent utilization_memory_percent
nvmlDeviceGetTemperature 0 uint 1 each temperature_celsius
nvmlDeviceGetPowerUsage - uint 0.001 each power_watts
nvmlDeviceGetEnforcedPowerLimit - uint 0.001 slow power_limit_watts
nvmlDeviceGetClockInfo 1 uint 1e6 each clock_sm_hertz
nvmlDeviceGetClockInfo 2 uint 1e6 each clock_memory_hertz
nvmlDeviceGetClockInfo 3 uint 1e6 slow clock_video_hertz
nvmlDeviceGetPerformanceState - uint 1 each performance_state
nvmlDeviceGetCurrPcieLinkGeneration - uint 1 each pcie_generation
nvmlDeviceGetCurrPcieLinkWidth - uint 1 slow pcie_width
nvmlDeviceGetRemappedRows - four 1 slow remapped_rows_correctable_count remapped_rows_uncorrectable_count remapped_rows_pending remapped_rows_failure
nvmlDeviceGetBAR1MemoryInfo - memory 1 slow bar1_total_bytes - bar1_used_bytes
nvmlDeviceGetPcieReplayCounter - uint 1 slow pcie_replay_count
nvmlDeviceGetFanSpeed - uint 1 slow fan_percent
nvmlDeviceGetEncoderUtilization - two 1 slow utilization_encoder_percent -
nvmlDeviceGetDecoderUtilization - two 1 slow utilization_decoder_percent -
nvmlDeviceGetTemperatureThreshold 1 uint 1 once temperature_slowdown_celsius
nvmlDeviceGetTemperatureThreshold 0 uint 1 once temperature_shutdown_celsius
nvmlDeviceGetMaxClockInfo 1 uint 1e6 once clock_sm_max_hertz
nvmlDeviceGetMaxClockInfo 2 uint 1e6 once clock_memory_max_hertz
nvmlDeviceGetMaxClockInfo 3 uint 1e6 once clock_video_max_hertz
nvmlDeviceGetMaxPcieLinkGeneration - uint 1 once pcie_generation_max
nvmlDeviceGetMaxPcieLinkWidth - uint 1 once pcie_width_max
nvmlDeviceGetMemoryBusWidth - uint 1 once memory_bus_width_bits
nvmlDeviceGetNumGpuCores - uint 1 once cores_count
"""
"""Function, argument, results, factor, period, and the metrics in the order of the results (- is dropped).

A row whose first metric was just read by an earlier row is not read.
"""
FIELDS = """
3 1 ecc_corrected_volatile_count
4 1 ecc_uncorrected_volatile_count
5 1 ecc_corrected_aggregate_count
6 1 ecc_uncorrected_aggregate_count
29 1 retired_pages_corrected_count
30 1 retired_pages_uncorrected_count
31 1 retired_pages_pending
82 1 temperature_memory_celsius
186 0.001 power_instant_watts
"""
"""ID of a field value of NVML, factor, metric. They and the links share one call."""
FIELD_NVLINK_SPEED = 164
FIELD_FORMATS = ("d", "I", "Q", "Q", "q", "i", "H")
"""Of the module struct, by NVML's type of the value."""
SWITCHES = ("disabled", "enabled")
COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")
ARCHITECTURES = dict(enumerate("Kepler Maxwell Pascal Volta Turing Ampere Ada Hopper Blackwell".split(), 2))
ATTRIBUTES = (
    ("compute_capability", "nvmlDeviceGetCudaComputeCapability", (INT, INT), None),
    ("architecture", "nvmlDeviceGetArchitecture", (UINT,), ARCHITECTURES),
    ("persistence_mode", "nvmlDeviceGetPersistenceMode", (UINT,), dict(enumerate(SWITCHES))),
    ("compute_mode", "nvmlDeviceGetComputeMode", (UINT,), dict(enumerate(COMPUTE_MODES))),
    ("ecc_mode ecc_mode_pending", "nvmlDeviceGetEccMode", (UINT, UINT), dict(enumerate(SWITCHES))),
    ("mig_mode mig_mode_pending", "nvmlDeviceGetMigMode", (UINT, UINT), dict(enumerate(SWITCHES))),
)
"""Fields, function, types of the results, and their texts by value; None joins the values with a point."""
TEXTS = (("name", "Name", 96), ("uuid", "UUID", 96), ("vbios_version", "VbiosVersion", 32))
"""Field, end of the function's name, bytes of the buffer."""
PROCESS_LISTS = (("compute", "Compute"), ("graphics", "Graphics"), ("mps", "MPSCompute"))
"""Kind, and the middle of the function's name."""
CLOCK_REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
THROTTLE_REASONS = (
    "gpu_idle applications_clocks_setting sw_power_cap hw_slowdown sync_boost sw_thermal_slowdown "
    "hw_thermal_slowdown hw_power_brake_slowdown display_clock_setting"
).split()
"""From the lowest bit on."""
READER_ROWS = [line.split() for line in READERS.strip().splitlines()]
FIELD_ROWS = [(int(field), float(factor), name) for field, factor, name in map(str.split, FIELDS.strip().splitlines())]
FIELD_METRICS = [name for _, _, name in FIELD_ROWS]
LINK_METRICS = ["nvlink_links_count", "nvlink_bytes_per_second"]
READ = [metric for row in READER_ROWS for metric in row[5:] if metric != "-"]
METRICS = tuple(dict.fromkeys([*READ, *FIELD_METRICS, *LINK_METRICS, "memory_unattributed_bytes"]))
"""The metrics that this collector reads."""
NOT_READ = ()
"""The other metrics of gpumon, which sets it at the end of this text."""
HOST_RATES = [
    "%s_bytes_per_second" % name for name in ("network_receive", "network_transmit", "disk_read", "disk_write")
]

UNINITIALIZED, NOT_SUPPORTED, INSUFFICIENT_SIZE, DRIVER_NOT_LOADED = 1, 3, 7, 9
LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND, GPU_IS_LOST, RESET_REQUIRED = 12, 13, 15, 16
GPU_GONE, DRIVER_GONE = {GPU_IS_LOST, RESET_REQUIRED}, {UNINITIALIZED, DRIVER_NOT_LOADED}
PROBLEMS = """
3 ~ not_supported ~ Not supported by this GPU or driver.
4 ~ no_permission ~ Permission denied by the driver.
6 ~ not_found ~ The driver has no value to report.
9 ~ driver_not_loaded ~ The NVIDIA kernel driver is not loaded. ~ Load the driver: sudo modprobe nvidia. If that fails, check dmesg for the cause.
10 ~ unresponsive ~ The driver timed out waiting for the GPU.
12 ~ library_not_found ~ The NVIDIA driver library (libnvidia-ml.so.1) is not installed on this host. ~ Install the NVIDIA driver; start a container with the NVIDIA Container Toolkit (--gpus all).
13 ~ driver_too_old ~ This NVIDIA driver is too old for this query. ~ Install a newer NVIDIA driver.
15 ~ gpu_lost ~ The GPU has fallen off the bus. ~ Check the kernel log for an Xid (dmesg | grep -i xid), then reset the GPU or reboot.
16 ~ gpu_lost ~ The GPU must be reset before it can be used. ~ Reset the GPU or reboot.
18 ~ library_mismatch ~ The versions of the NVIDIA library and the loaded kernel driver differ. ~ Reboot, or reload the nvidia kernel modules, so that both versions match.
NO_DEVICES ~ no_devices ~ The NVIDIA driver is loaded but reports no GPU. ~ Check lspci | grep -i nvidia and dmesg. gpumon shows a new GPU as soon as the driver reports it.
REDUCED ~ not_read ~ Not in the reduced collector, which reads hosts with Python 3.6 to 3.9. ~ Install Python 3.10 or later there.
NOT_VISIBLE ~ process_not_visible ~ No such process in /proc: the process has ended, runs in another PID namespace, or is hidden from this user.
UNPROVEN ~ process_not_visible ~ gpumon runs in its own PID namespace (a container) and cannot prove which process this PID belongs to. ~ Run gpumon in the host's PID namespace (docker run --pid=host, or hostPID: true in Kubernetes).
NEEDS_TWO_SAMPLES ~ not_read ~ Needs two samples.
MEMORY_NOT_REPORTED ~ not_supported ~ The driver does not report the memory of this process.
UNATTRIBUTED ~ not_read ~ Needs the memory in use, and that of all processes.
"""
"""NVML's code or a name, code of gpumon, reason, remedy."""
PROBLEM_BY_NAME = {}
for line in PROBLEMS.strip().splitlines():
    name, *texts = line.split(" ~ ")
    PROBLEM_BY_NAME[name] = dict(zip(("code", "reason", "remedy"), texts))


class NvmlCallError(Exception):
    """A call failed, with NVML's code."""

    def __init__(self, code):
        super().__init__("NVML returned %d" % code)
        self.code = code

    @property
    def problem(self):
        """The reason as JSON."""
        unknown = {"code": "unknown", "reason": "NVML returned: error %d." % self.code}
        return PROBLEM_BY_NAME.get(str(self.code), unknown)


class OldPythonDriver:
    """The driver's library, with a count of the calls."""

    def __init__(self):
        self.calls = self.errors = 0
        try:
            self._library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            raise NvmlCallError(LIBRARY_NOT_FOUND) from None
        self.call(("nvmlInit_v2", "nvmlInit"))

    def call(self, names, *arguments):
        """Calls the first function of ``names`` that the driver has; raises NvmlCallError."""
        self.calls += 1
        code = FUNCTION_NOT_FOUND
        for name in names:
            function = getattr(self._library, name, None)
            if function is not None:
                code = function(*arguments)
                break
        if code:
            self.errors += 1
            raise NvmlCallError(code)

    def results(self, names, types, *arguments):
        """Calls a function that fills results of these types; returns their values, of a structure those of its fields."""
        outputs = [type_() for type_ in types]
        for output in outputs:
            if isinstance(output, MemoryV2):
                output.version = ctypes.sizeof(output) | 2 << 24
        self.call(names, *arguments, *(ctypes.byref(output) for output in outputs))
        values = []
        for output in outputs:
            if isinstance(output, ctypes.Structure):
                values += [getattr(output, field) for field, _ in output._fields_ if field != "version"]
            else:
                values.append(output.value)
        return values

    def text(self, name, size, *arguments):
        """Calls a function that fills a text."""
        buffer = ctypes.create_string_buffer(size)
        self.call((name,), *arguments, buffer, size)
        return buffer.value.decode("utf-8", "replace")


class OldPythonGpu:
    """One GPU, with its last values and when each is due."""

    def __init__(self, driver, index):
        self._driver, self._index = driver, index
        self._handle = ctypes.c_void_p()
        self._due = {}
        self._values = {"index": index, "cuda_index": None, "state": "ok", "age_seconds": 0.0}
        self._problems = {}

    def read(self, now, processes):
        """The GPU as a device of a frame. Raises NvmlCallError if the driver is gone."""
        try:
            if not self._handle:
                self._driver.call(("nvmlDeviceGetHandleByIndex_v2",), UINT(self._index), ctypes.byref(self._handle))
                self._read_identity()
            self._read_metrics(now)
            self._attempt(("throttle_reasons",), self._throttle_reasons)
            self._attempt(("processes",), lambda: [self._processes(processes)])
            self._add_unattributed()
        except NvmlCallError as failure:
            if failure.code in DRIVER_GONE:
                raise
            return self._gone("lost" if failure.code in GPU_GONE else "unresponsive", failure.problem)
        device = {name: value for name, value in self._values.items() if value is not None}
        device.update(problems=self._problems, missing=[0])
        return device

    def _attempt(self, names, read):
        """Reads values, or their problem; returns NVML's code. A lost GPU or driver is raised."""
        try:
            values = read()
        except NvmlCallError as failure:
            if failure.code in GPU_GONE | DRIVER_GONE:
                raise
            for name in names:
                self._values[name] = None
                self._problems[name] = failure.problem
            return failure.code
        for name, value in zip(names, values):
            self._values[name] = value
            self._problems.pop(name, None)
        return 0

    def _read_identity(self):
        for field, name, size in TEXTS:
            self._attempt((field,), partial(self._text, name, size))
        self._attempt(("pci_bus_id",), self._bus_id)

    def _text(self, name, size):
        return [self._driver.text("nvmlDeviceGet" + name, size, self._handle)]

    def _bus_id(self):
        info = PciInfo()
        self._driver.call(("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2"), self._handle, ctypes.byref(info))
        return [info.bus_id.decode("ascii", "replace")]

    def _read_metrics(self, now):
        done = set()
        for name, argument, types, factor, pace, *names in READER_ROWS:
            key, period = name + argument, PERIODS[pace]
            if names[0] not in done and now >= self._due.get(key, 0):
                arguments = () if argument == "-" else (int(argument),)
                code = self._attempt(names, partial(self._scaled, name, arguments, TYPES[types], float(factor)))
                if not code:
                    done.update(names)
                self._settle(key, code, now, period)
        for fields, name, types, texts in ATTRIBUTES:
            if now >= self._due.get(name, 0):
                code = self._attempt(fields.split(), partial(self._attribute, name, types, texts))
                self._settle(name, code, now, SLOW)
        if now >= self._due.get("fields", 0):
            self._settle("fields", self._read_fields(), now, SLOW)
        self._values.pop("-", None)
        self._problems.pop("-", None)

    def _scaled(self, name, arguments, types, factor):
        return [value * factor for value in self._driver.results((name,), types, self._handle, *arguments)]

    def _settle(self, name, code, now, period):
        is_unsupported = code in {NOT_SUPPORTED, FUNCTION_NOT_FOUND}
        wait = max(period, RETRY_SECONDS) if is_unsupported else min(period, SLOW) if code else period
        self._due[name] = now + wait - 0.05 if wait else 0.0

    def _attribute(self, name, types, texts):
        values = self._driver.results((name,), types, self._handle)
        return [".".join(map(str, values))] if texts is None else [texts.get(value) for value in values]

    def _read_fields(self):
        """Reads all field values with one call; returns its code."""
        wanted = [(field, 0) for field, _, _ in FIELD_ROWS] + [(FIELD_NVLINK_SPEED, link) for link in range(LINKS)]
        values = (FieldValue * (len(wanted) + 1))()  # some drivers write past the last one
        for value, (field, scope) in zip(values, [*wanted, wanted[-1]]):
            value.field, value.scope = field, scope
        call = partial(self._driver.call, ("nvmlDeviceGetFieldValues",), self._handle, len(values), values)
        code = self._attempt(FIELD_METRICS + LINK_METRICS, lambda: call() or ())
        if not code:
            for (_, factor, name), value in zip(FIELD_ROWS, values):
                self._attempt((name,), partial(_field_value, value, factor))
            self._attempt(LINK_METRICS, partial(_links, values[len(FIELD_ROWS) : len(wanted)]))
        return code

    def _throttle_reasons(self):
        (bits,) = self._driver.results(CLOCK_REASONS, (ULONG,), self._handle)
        return [[name for place, name in enumerate(THROTTLE_REASONS) if bits >> place & 1]]

    def _processes(self, processes):
        """The processes of all lists; only that of the compute processes has to work."""
        merged = {}
        for kind, name in PROCESS_LISTS:
            call = "nvmlDeviceGet%sRunningProcesses" % name
            try:
                entries = self._process_list((call + "_v3", call + "_v2"))
            except NvmlCallError as failure:
                if kind == "compute" or failure.code in GPU_GONE:
                    raise
                continue
            memory = {}
            for entry in entries:
                used = None if entry.memory == NOT_AVAILABLE else entry.memory
                known = memory.get(entry.pid, 0)
                memory[entry.pid] = None if used is None or known is None else known + used
            for pid, used in memory.items():
                document = merged.setdefault(pid, dict(processes.facts(pid), kinds=[], memory_bytes=used))
                document["kinds"].append(kind)
        for document in merged.values():
            if document["memory_bytes"] is None:
                document["problems"] = dict(document["problems"], memory_bytes=PROBLEM_BY_NAME["MEMORY_NOT_REPORTED"])
        return list(merged.values())

    def _process_list(self, names):
        size = UINT(0)
        array = None
        for _ in range(4):  # processes may start between two calls
            try:
                self._driver.call(names, self._handle, ctypes.byref(size), array)
                return [] if array is None else array[: size.value]
            except NvmlCallError as failure:
                if failure.code != INSUFFICIENT_SIZE:
                    raise
            size = UINT(size.value + 8)
            array = (ProcessInfo * size.value)()
        raise NvmlCallError(INSUFFICIENT_SIZE)

    def _add_unattributed(self):
        values = self._values
        memory = [process["memory_bytes"] for process in values.get("processes") or []]
        is_known = None not in [*memory, values.get("memory_used_bytes"), values.get("memory_reserved_bytes")]
        if is_known and values.get("processes") is not None:
            values["memory_unattributed_bytes"] = max(0, values["memory_used_bytes"] - sum(memory))
            self._problems.pop("memory_unattributed_bytes", None)
        else:
            values["memory_unattributed_bytes"] = None
            self._problems["memory_unattributed_bytes"] = PROBLEM_BY_NAME["UNATTRIBUTED"]

    def _gone(self, state, reason):
        """A GPU that does not answer: its identity only."""
        kept = ("index", "uuid", "name", "pci_bus_id", "architecture")
        device = {name: self._values.get(name) for name in kept}
        fields = [*METRICS, *NOT_READ, "processes", "throttle_reasons", "age_seconds", "state"]
        device.update(state=state, processes=None, problems=dict.fromkeys(fields, reason))
        return device


def _field_value(value, factor):
    if value.code or value.type >= len(FIELD_FORMATS):
        raise NvmlCallError(value.code or NOT_SUPPORTED)
    return [struct.unpack_from(FIELD_FORMATS[value.type], bytes(bytearray(value.value)))[0] * factor]


def _links(values):
    """The number of links that are up, and their total rate (NVML has MB/s)."""
    speeds = [_field_value(value, 1e6)[0] for value in values if not value.code] or _field_value(values[0], 1e6)
    return [sum(speed > 0 for speed in speeds), sum(speeds)]


class OldPythonProcesses:
    """Facts of /proc about the processes of all GPUs, each read once per frame."""

    def __init__(self):
        try:
            self._is_proven = os.readlink("/proc/self/ns/pid") == PID_NAMESPACE
        except OSError:
            self._is_proven = not os.path.exists("/proc/self/ns")
        self._known = {}
        self._facts = {}
        self._now = 0.0

    def start_frame(self, now):
        """Forgets the facts of the last frame, and processes that no GPU has now."""
        self._known = {pid: known for pid, known in self._known.items() if pid in self._facts}
        self._facts = {}
        self._now = now

    def facts(self, pid):
        """A process as JSON, without what NVML knows."""
        if pid not in self._facts:
            facts, reasons = {}, {}
            try:
                if self._is_proven:
                    facts = self._read(pid)
            except (OSError, ValueError, IndexError, KeyError):
                self._known.pop(pid, None)
            if not facts:
                reason = PROBLEM_BY_NAME["NOT_VISIBLE" if self._is_proven else "UNPROVEN"]
                names = ("user", "command", "cpu_percent", "host_memory_bytes", "age_seconds")
                reasons = dict.fromkeys(names, reason)
            elif facts["cpu_percent"] is None:
                reasons = {"cpu_percent": PROBLEM_BY_NAME["NEEDS_TWO_SAMPLES"]}
            self._facts[pid] = dict(facts, pid=pid, problems=reasons, missing=[1])
        return self._facts[pid]

    def _read(self, pid):
        folder = "/proc/%d/" % pid
        fields = _read_file(folder + "stat").rpartition(b")")[2].split()
        start, seconds = int(fields[19]), (int(fields[11]) + int(fields[12])) / TICKS
        known = self._known.get(pid)
        cpu_percent = None
        if known is None or known[0] != start:
            uid = int(_pairs(folder + "status")["Uid"].split()[1])
            command = _read_file(folder + "cmdline").rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")
            name = command[:512] or "[%s]" % _read_file(folder + "comm").decode("utf-8", "replace").strip()
            texts = _user_name(uid), name
        else:
            texts = known[3]
            if self._now > known[1]:
                cpu_percent = round(100 * (seconds - known[2]) / (self._now - known[1]), 1)
        self._known[pid] = (start, self._now, seconds, texts)
        return {
            "user": texts[0],
            "command": texts[1],
            "cpu_percent": cpu_percent,
            "host_memory_bytes": int(fields[21]) * PAGE_BYTES,
            "age_seconds": round(max(0.0, time.clock_gettime(CLOCK_BOOTTIME) - start / TICKS), 1),
            "start_ticks": start,
        }


def _user_name(uid):
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _read_file(path):
    with open(path, "rb") as file:
        return file.read(8192)


def _pairs(path):
    return dict(line.split(":", 1) for line in _read_file(path).decode("utf-8", "replace").splitlines() if ":" in line)


class OldPythonHost:
    """The host: load, memory and uptime."""

    def __init__(self):
        self._times = None

    def read(self):
        """The host of a frame."""
        document = {
            "name": platform.node()[:64] or None,
            "cpu_count": os.cpu_count(),
            "load_average": os.getloadavg(),
            "uptime_seconds": round(time.clock_gettime(CLOCK_BOOTTIME), 1),
            "problems": dict.fromkeys(HOST_RATES, PROBLEM_BY_NAME["REDUCED"]),
        }
        sizes = _pairs("/proc/meminfo")
        for field, name in (("memory_total_bytes", "MemTotal"), ("memory_available_bytes", "MemAvailable")):
            document[field] = int(sizes[name].split()[0]) << 10 if name in sizes else None
        times = [int(field) for field in _read_file("/proc/stat").split(b"\n")[0].split()[1:9]]
        before, self._times = self._times, times
        passed = 0 if before is None else sum(times) - sum(before)
        if passed > 0:
            idle = sum(times[3:5]) - sum(before[3:5])
            document["cpu_percent"] = round(100 * min(1.0, max(0.0, 1 - idle / passed)), 1)
        else:
            document["problems"]["cpu_percent"] = PROBLEM_BY_NAME["NEEDS_TWO_SAMPLES"]
        return document


class ReducedCollector:
    """Reads the host, with the driver as soon as it is there."""

    def __init__(self, interval):
        self._interval = interval
        self._driver = None
        self._gpus = []
        self._versions = {}
        self._host, self._processes = OldPythonHost(), OldPythonProcesses()

    def frame(self):
        """The next frame as a document. Raises NvmlCallError if a driver that was there is gone."""
        now = time.monotonic()
        problems, devices = {}, []
        try:
            if self._driver is None:
                self._open()
        except NvmlCallError as failure:
            problems["driver"] = failure.problem
        else:
            self._processes.start_frame(now)
            devices = [gpu.read(now, self._processes) for gpu in self._gpus]
            if not devices:
                problems["driver"] = PROBLEM_BY_NAME["NO_DEVICES"]
                self._driver = None
        reduced = [
            dict(PROBLEM_BY_NAME["REDUCED"], fields=[*NOT_READ, "cuda_index"]),
            dict(PROBLEM_BY_NAME["REDUCED"], fields=["sm_percent"]),
        ]
        return dict(
            self._versions,
            schema=SCHEMA,
            time_seconds=round(time.time(), 3),
            monotonic_seconds=round(now, 3),
            interval_seconds=self._interval,
            host=self._host.read(),
            devices=devices,
            sweep={
                "seconds": round(time.monotonic() - now, 6),
                "nvml_calls": getattr(self._driver, "calls", 0),
                "nvml_errors": getattr(self._driver, "errors", 0),
            },
            problems=problems,
            reasons=reduced,
        )

    def _open(self):
        driver = OldPythonDriver()
        (count,) = driver.results(("nvmlDeviceGetCount_v2",), (UINT,))
        self._gpus = [OldPythonGpu(driver, index) for index in range(count)]
        (cuda,) = driver.results(("nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"), (INT,))
        self._versions = {
            "driver_version": driver.text("nvmlSystemGetDriverVersion", 80),
            "cuda_driver_version": "%d.%d" % (cuda // 1000, cuda % 1000 // 10),
        }
        self._driver = driver


def _end_with_input():
    """Ends the process with its standard input, even while another thread is in a driver call."""
    while os.read(0, 4096):
        pass
    os._exit(0)


def run(interval):
    """Writes frames until the connection ends, seconds between two frames given."""
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        with open("/proc/self/comm", "w") as file:
            file.write("gpumon-collect")
    except OSError:
        pass
    collector = ReducedCollector(interval)
    tick = time.monotonic()
    try:
        while True:
            sys.stdout.write(json.dumps(collector.frame(), separators=(",", ":")) + "\n")
            sys.stdout.flush()
            tick = max(tick + interval, time.monotonic())
            time.sleep(tick - time.monotonic() if tick > time.monotonic() else 0)
    except NvmlCallError as failure:
        sys.stderr.write("The driver is gone: %s\n" % failure)
        sys.stderr.flush()
        os._exit(1)
    except BrokenPipeError:
        os._exit(0)
