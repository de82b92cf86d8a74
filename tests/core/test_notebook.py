"""Records in a notebook: values with units, the reason of a missing one, and text that is never markup."""

import re

import pytest

from gpumon.core import notebook
from gpumon.core.problems import Problem, ProblemCode
from gpumon.errors.explain import explain_text
from gpumon.operations.waterfall import GpuProcess
from tests import builders


def test_a_frame_is_a_table_of_its_gpus() -> None:
    problem = Problem(ProblemCode.NOT_SUPPORTED, "This <GPU> has none.")
    hostile = builders.device(1, name="<script>", readings={"power_watts": None}, problems={"power_watts": problem})
    html = builders.frame(devices=(builders.device(readings={"memory_used_bytes": 3 << 30}), hostile))._repr_html_()
    assert html.count("<tr>") == 3
    assert "3.00 GiB" in html
    assert ">ok<" in html
    assert re.search(r"<td[^>]*>13%|<td[^>]*>\d+ %", html)
    assert '<td title="This &lt;GPU&gt; has none.">–</td>' in html
    assert "<script>" not in html
    assert (
        "no driver" in builders.frame(devices=(), problems={"driver": Problem(problem.code, "no driver")})._repr_html_()
    )


def test_every_name_of_a_record_can_be_shown() -> None:
    device = builders.device()
    process = GpuProcess(device, 7, None, None, None)
    explanation = explain_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    assert "<p>" in explanation._repr_html_()
    for record in (device, builders.process(7), process):
        assert len(re.findall("<td", record._repr_html_())) == len(record.shown)
    with pytest.raises(AttributeError):
        notebook.NotebookTable().table_cell("nonsense")
