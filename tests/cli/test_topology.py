"""`gpumon topology` on stand-in hosts: the matrix, the JSON document, and faults."""

import json
import re

import pytest

from tests.cli.running import run
from tests.nvml_mock import NvmlMock


def test_eight_gpus_with_an_nvswitch(nvml_mock: NvmlMock) -> None:
    done = run("topology", env=nvml_mock.environment(gpus=8))
    assert done.returncode == 0
    assert "GPU 3       NV18 NV18 NV18 X    NV18 NV18 NV18 NV18" in done.stdout
    assert "Every GPU can read the memory of every other GPU." in done.stdout
    assert "Nothing is wrong" in done.stdout


def test_faults_are_sentences(nvml_mock: NvmlMock) -> None:
    done = run("topology", env=nvml_mock.environment(gpus=4, fault="linkdown:1=5,narrow:2"))
    assert "GPU 1: NVLink 5 is down, 17 of 18 are up." in done.stdout
    assert "GPU 2 uses 8 of 16 PCIe lanes." in done.stdout


def test_the_json_document(nvml_mock: NvmlMock) -> None:
    document = json.loads(run("topology", "--json", env=nvml_mock.environment(gpus=2)).stdout)
    assert document["schema"] == 1
    assert [gpu["index"] for gpu in document["gpus"]] == [0, 1]
    assert len(document["gpus"][0]["links"]) == 18
    assert document["pairs"][0]["nvlinks"] == 18
    assert document["findings"] == []
    for record in (*document["gpus"], *document["pairs"], *document["network_cards"]):
        missing = {name for name, value in record.items() if value is None}
        assert missing <= set(record["problems"]), record


def test_the_traffic_on_each_link(nvml_mock: NvmlMock) -> None:
    environment = nvml_mock.environment(gpus=4)
    gpus = json.loads(run("topology", "--json", env=environment).stdout)["gpus"]
    for gpu in gpus:
        for link in gpu["links"]:
            expected = 0 if gpu["index"] == 3 else 9e6 * 1024 * (1 + 0.05 * link["number"])
            assert link["transmit_bytes_per_second"] == pytest.approx(expected, rel=0.3)
            assert link["transmitted_bytes"] > 1e12
            missing = {name for name, value in link.items() if value is None}
            assert missing <= set(link["problems"]), link
    done = run("topology", env={**environment, "COLUMNS": "100"})
    section = done.stdout.partition("NVLink traffic")[2].splitlines()
    assert re.fullmatch(r"GPU 0   out   2\d\d\.\d [89]\.\d ( *\d\d?(\.\d)?){17}", section[2]), section
    assert re.fullmatch(r"GPU 3   out     0\.0   0( +0){17}", section[8]), section


def test_traffic_that_the_driver_does_not_report_has_a_reason(nvml_mock: NvmlMock) -> None:
    done = run("topology", env=nvml_mock.environment(gpus=2, fault="notsupported:linkrate"))
    assert "NV18" in done.stdout
    assert "Not supported by this GPU or driver." in done.stdout.partition("NVLink traffic")[2]
    done = run("topology", env=nvml_mock.environment(gpus=2, NVML_MOCK_NVLINK="0"))
    assert "Not supported by this GPU or driver." in done.stdout.partition("NVLink traffic")[2]


def test_a_driver_that_crashes_while_it_reads_the_counters_costs_only_the_traffic(nvml_mock: NvmlMock) -> None:
    done = run("topology", env=nvml_mock.environment(gpus=2, fault="abort:fields@2c"))
    assert done.returncode == 0, done.stderr
    assert "GPU 1       NV18 X" in done.stdout
    assert "The collector ended: SIGABRT in nvmlDeviceGetFieldValues" in done.stdout.partition("NVLink traffic")[2]
