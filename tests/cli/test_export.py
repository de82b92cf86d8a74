"""`gpumon export` and `gpumon replay --since`: chosen metrics and times of a recording, and nothing invented."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gpumon.cli.commands import gpumon as commands
from gpumon.core.frames import encode
from gpumon.core.metrics import METRICS
from gpumon.core.model import HOST_RATES, DeviceState
from gpumon.core.problems import ExitCode
from gpumon.operations import export as operation
from gpumon.operations.export import export, parse_since
from tests import builders
from tests.cli.running import is_one_line, run, shell
from tests.nvml_mock import NvmlMock

SECONDS = 20
START = 1_777_645_800.0


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A recording of two GPUs; the second GPU is lost from the tenth second."""
    path = tmp_path / "run.jsonl"
    path.write_text("".join(line + "\n" for line in lines()))
    return path


def lines() -> Iterator[str]:
    for second in range(SECONDS):
        first = builders.device(0, readings={"power_watts": 100.0 + second, "fan_percent": None})
        second_device = (
            builders.device(1) if second < 10 else builders.device(1, state=DeviceState.LOST, age_seconds=5.0)
        )
        yield encode(
            builders.frame(time_seconds=START + second, monotonic_seconds=50.0 + second, devices=(first, second_device))
        )


def rows(file: Path, metrics: list[str], since: str | None = None) -> list[dict[str, str]]:
    out = io.StringIO()
    export(file, metrics, parse_since(since), out, as_json=False)
    return list(csv.DictReader(io.StringIO(out.getvalue())))


def test_one_row_per_gpu_and_sample(recording: Path) -> None:
    exported = rows(recording, ["power_watts", "utilization_gpu_percent", "fan_percent"])
    assert len(exported) == 2 * SECONDS
    assert exported[0] == {
        "time_seconds": f"{START:.3f}",
        "index": "0",
        "uuid": builders.device(0).uuid,
        "power_watts": "100.0",
        "utilization_gpu_percent": "87",
        "fan_percent": "",
    }
    assert exported[-1]["power_watts"] == "", "the GPU is lost: its last values are not current"


def test_json_lines_have_a_reason_for_every_missing_value(recording: Path) -> None:
    out = io.StringIO()
    export(recording, ["power_watts", "fan_percent"], None, out, as_json=True)
    documents = [json.loads(line) for line in out.getvalue().splitlines()]
    assert len(documents) == 2 * SECONDS
    assert documents[0]["schema"] == 1
    assert (documents[0]["power_watts"], documents[0]["fan_percent"]) == (100.0, None)
    for document in documents:
        missing = {metric for metric in ("power_watts", "fan_percent") if document[metric] is None}
        assert set(document["problems"]) == missing
        assert all(problem["code"] and problem["reason"] for problem in document["problems"].values())


def test_an_unknown_metric_is_reported_with_the_closest_names(recording: Path, nvml_mock: NvmlMock) -> None:
    done = run("export", str(recording), "--metrics", "power_wats,temp", env=nvml_mock.environment_without_library())
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
    assert is_one_line(done.stderr)
    assert "power_wats" in done.stderr
    assert "power_watts" in done.stderr.replace("power_wats.", "")


def test_all_metrics_and_standard_input(recording: Path, nvml_mock: NvmlMock) -> None:
    environment = nvml_mock.environment_without_library()
    done = shell(f'cat {recording} | "$@"', "export", "-", env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    table = list(csv.reader(io.StringIO(done.stdout)))
    assert table[0] == ["time_seconds", "index", "uuid", *METRICS, *HOST_RATES]
    assert len(table) == 1 + 2 * SECONDS
    done = shell(f'cat {recording} | "$@"', "export", "-", "--since", "5s", env=environment)
    assert done.returncode == ExitCode.USAGE
    assert "pipe" in done.stderr
    done = shell(f'"$@" < {recording}', "export", "-", "--json", "--since", "5s", env=environment)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 12)


@pytest.mark.parametrize("arguments", [["--since", "yesterday"], ["--since", ""]])
def test_an_invalid_start_is_reported(recording: Path, nvml_mock: NvmlMock, arguments: list[str]) -> None:
    done = run("export", str(recording), *arguments, env=nvml_mock.environment_without_library())
    assert done.returncode == ExitCode.USAGE
    assert is_one_line(done.stderr)


def test_rows_are_written_while_the_recording_is_read(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first row is written before the second frame is read."""
    read: list[float] = []
    original = operation._records_from

    def watched(*arguments: object) -> Iterator[object]:
        for record in original(*arguments):  # type: ignore[arg-type]
            read.append(record.seconds)
            yield record

    class Out(io.StringIO):
        def write(self, text: str) -> int:
            seen.append(len(read))
            return super().write(text)

    seen: list[int] = []
    monkeypatch.setattr(operation, "_records_from", watched)
    export(recording, ["power_watts"], None, Out(), as_json=False)
    assert seen[:4] == [0, 1, 1, 2]


def test_every_screen_has_the_history_option() -> None:
    def has_history(command: click.Command) -> bool:
        return "history" in {parameter.name for parameter in command.params}

    assert {name for name, command in commands.commands.items() if has_history(command)} == {
        "demo",
        "fleet",
        "replay",
        "ssh",
    }
    assert has_history(commands)
