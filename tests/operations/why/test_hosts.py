"""A job of several hosts: what `gpumon why --json` prints on each of them, through a real sshd, as one answer."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gpumon.core.problems import CommandError
from gpumon.core.step_classes import DATA
from gpumon.operations.why.document import why_document, why_job_document
from gpumon.operations.why.hosts import examine_hosts, parse_reports
from gpumon.operations.why.processes import compared
from gpumon.present.paint.line import plain
from gpumon.present.why import job_lines
from tests.operations.why.test_job import rank
from tests.streams.remote_host import needs_sshd, ssh_server


@needs_sshd
def test_the_ranks_of_all_hosts_are_compared(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "one.json").write_text(json.dumps(why_job_document(compared((rank(0, 0.05), rank(1, 0.05)), {}))))
    (tmp_path / "two.json").write_text(json.dumps(why_job_document(compared((rank(2, 0.09, DATA), rank(3, 0.05)), {}))))
    (tmp_path / "bin" / "gpumon").write_text(
        f"#!/bin/sh\n[ \"$*\" = 'why --json --no-trace -- my job' ] || exit 9\n"
        f"if mkdir {tmp_path}/first; then cat {tmp_path}/two.json; else cat {tmp_path}/one.json; exit 1; fi\n"
    )
    (tmp_path / "bin" / "gpumon").chmod(0o755)
    with ssh_server(tmp_path, {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}) as ssh:
        report = examine_hosts(["127.0.0.1", "localhost", "-bad.invalid"], ["--", "my job"], ssh)
        with pytest.raises(CommandError, match="exit code 9"):
            examine_hosts(["localhost"], ["--", "other"], ssh)
    assert [one.evidence.rank for one in report.ranks] == [0, 1, 2, 3]
    assert {one.host for one in report.ranks} == {"127.0.0.1", "localhost"}
    assert report.straggler is not None
    assert report.straggler.rank == 2
    assert list(report.problems) == ["-bad.invalid"]
    text = "\n".join(plain(line) for line in job_lines(report, 120))
    assert "The others wait for rank 2" in text
    assert "rank 2   127.0.0.1" in text or "rank 2   localhost" in text
    assert "-bad.invalid cannot be reached" in text
    assert why_job_document(report)["ranks"][0]["host"] in {"127.0.0.1", "localhost"}


def test_a_report_survives_the_way_through_json() -> None:
    report = rank(1, 0.09, DATA)
    assert report.verdict.causes
    (parsed,) = parse_reports(json.dumps(why_document(report)).encode(), "box")
    assert parsed.verdict == report.verdict
    assert parsed.evidence.account.shares == report.evidence.account.shares
    assert replace(parsed, evidence=report.evidence, host="") == report
    for broken in (b"[]", b"{}", b'{"ranks": [{"pid": -1}]}', b'{"ranks": 3}'):
        with pytest.raises(ValueError, match=r"."):
            parse_reports(broken, "box")
