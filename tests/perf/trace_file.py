"""Makes a large trace by repeating a real or a made one: ``python -m tests.perf.trace_file FILE MEGABYTES [SOURCE]``.

Without a source, the steps of a made training on a GPU are repeated, with as many operators, calls and Python functions
around each kernel as in a real trace. Times move on with each repetition, and correlations stay unique.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

from tests.traces.maker import MAIN, TraceMaker, training

_DETAILS: Final = {
    "Record function id": 0,
    "Concrete Inputs": ["", "", "[1024, 1024]", ""],
    "Input type": ["c10::BFloat16", "c10::BFloat16", "ScalarList", "Scalar"],
    "Input Strides": [[1024, 1], [1, 1024], [], []],
    "Input Dims": [[4096, 1024], [1024, 1024], [], []],
}
_PAUSE_MICROSECONDS: Final = 10.0


def main() -> None:
    """Write the file that is named."""
    path, megabytes = Path(sys.argv[1]), int(sys.argv[2])
    events = json.loads(Path(sys.argv[3]).read_text())["traceEvents"] if len(sys.argv) > 3 else made_events()
    count = write(path, megabytes, events)
    print(f"{path.stat().st_size / 1e6:,.0f} MB, {count:,} repetitions of {len(events):,} events")


def made_events() -> list[dict[str, Any]]:
    """Ten steps on a GPU with the events around them that torch.profiler records."""
    maker: TraceMaker = training(10)
    for number in range(10):
        at = 1000.0 * number
        maker.add("python_function", "train.py(30): train_step", at, 999)
        for index in range(150):
            begin = at + 6.0 * index
            maker.add("python_function", f"torch/nn/modules/module.py({index}): _call_impl", begin, 5.9)
            maker.operator("aten::linear", begin + 0.1, 5.7, more=_DETAILS)
            maker.operator("aten::addmm", begin + 0.2, 5.5, more=_DETAILS)
            if index % 3 == 0:
                maker.work("void at::native::elementwise_kernel<128, 4>", begin + 2, 3, launched=begin + 0.3, stream=9)
        maker.operator("aten::item", at + 300, 202, MAIN, more=_DETAILS)
    return maker.events


def write(path: Path, megabytes: int, events: list[dict[str, Any]]) -> int:
    """Write a trace of a size and return how often the events were repeated."""
    complete = [event for event in events if event.get("ph") == "X" and not isinstance(event["pid"], str)]
    others = [event for event in events if event.get("ph") == "M"]
    span = max(event["ts"] + event.get("dur", 0) for event in complete) - min(event["ts"] for event in complete)
    count = 0
    with path.open("w", encoding="utf-8") as file:
        file.write('{\n  "schemaVersion": 1,\n  "traceEvents": [\n')
        file.write(",\n".join(_kineto(event) for event in others))
        while file.tell() < megabytes * 1_000_000:
            shift = count * (span + _PAUSE_MICROSECONDS)
            for index, event in enumerate(complete):
                moved = {**event, "ts": round(event["ts"] + shift, 3)}
                correlation = event.get("args", {}).get("correlation")
                if correlation:
                    moved["args"] = {**event["args"], "correlation": correlation + count * 1_000_000}
                file.write(("" if count + index + len(others) == 0 else ",\n") + _kineto(moved))
            count += 1
        file.write('\n  ],\n  "traceName": "large.json"\n}\n')
    return count


def _kineto(event: dict[str, Any]) -> str:
    """An event with the line breaks of Kineto."""
    head = ",\n    ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in event.items() if key != "args")
    return f'  {{\n    {head},\n    "args": {{\n      {json.dumps(event.get("args", {}))[1:-1]}\n    }}\n  }}'


if __name__ == "__main__":
    main()
