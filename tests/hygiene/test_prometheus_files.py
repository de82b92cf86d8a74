"""The alert rules and the dashboard: valid, and made of metrics that the exporter has."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.metrics import METRICS
from gpumon.health.alerts import Alert, Severity
from gpumon.present.prometheus import metric_families
from gpumon.session.host_monitor import HostState
from tests import builders

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "prometheus"
RULES, DASHBOARD = FOLDER / "gpumon.rules.yml", FOLDER / "grafana-dashboard.json"
NAME = re.compile(r"gpumon_\w+")


def exported_names() -> set[str]:
    """Names of all metrics of a host that has everything; a counter has its suffix."""
    device = builders.device(
        readings={metric.id: max(metric.minimum, 1.0) for metric in METRICS.values()}, throttle_reasons=("hw_slowdown",)
    )
    alert = Alert("xid_79", Severity.CRITICAL, "", device_key=device.key)
    state = HostState(builders.frame(devices=(device,)), 0.0, alerts=(alert,), xids={(device.key, 79): 1})
    families = list(metric_families(state))
    return {f"{family.name}_total" if family.type == "counter" else family.name for family in families}


def expressions() -> list[str]:
    dashboard: dict[str, Any] = json.loads(DASHBOARD.read_text())
    panels = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return panels + [variable.get("definition", "") for variable in dashboard["templating"]["list"]]


def test_rules_and_dashboard_use_metrics_that_exist() -> None:
    known = exported_names()
    used = {name for text in (RULES.read_text(), *expressions()) for name in NAME.findall(text)}
    assert len(used) >= 15
    assert used <= known


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_accepts_rules_and_expressions(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": filled(text)} for number, text in enumerate(expressions()) if text]
    rules = [rule for rule in rules if not rule["expr"].startswith("label_values(")]
    panels = tmp_path / "panels.yml"
    panels.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))  # JSON is YAML
    done = subprocess.run(
        ["promtool", "check", "rules", str(RULES), str(panels)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def filled(expression: str) -> str:
    """An expression with the variables of the dashboard replaced."""
    return expression.replace("$instance", ".*").replace("$gpu", ".*")
