"""Where the documentation describes a screen or an alert. A page is a file of the repository, not a public address."""

from typing import Final

from gpumon.health.alerts import Alert, rule_label

SCREEN_PAGES: Final = {
    "AlertsScreen": "docs/alerts.md",
    "AllocatorSummaryScreen": "docs/memory.md",
    "CodeScreen": "docs/workloads.md",
    "CostScreen": "docs/costs.md",
    "DeviceScreen": "docs/device.md",
    "DoctorScreen": "docs/doctor.md",
    "ExplainScreen": "docs/explain.md",
    "FleetScreen": "docs/fleet.md",
    "JobScreen": "docs/jobs.md",
    "JobsScreen": "docs/jobs.md",
    "LogScreen": "docs/workloads.md",
    "MemoryScreen": "docs/memory.md",
    "MemorySummaryScreen": "docs/workloads.md",
    "MetricChoiceScreen": "docs/device.md",
    "OomScreen": "docs/explain.md",
    "OverlayChoiceScreen": "docs/device.md",
    "OverviewScreen": "docs/overview.md",
    "ProcessScreen": "docs/processes.md",
    "ProcessesScreen": "docs/processes.md",
    "RunScreen": "docs/workloads.md",
    "SegmentsScreen": "docs/memory.md",
    "SnapshotScreen": "docs/memory.md",
    "TopologyScreen": "docs/choosing.md",
    "WhyScreen": "docs/why.md",
    "TraceScreen": "docs/traces.md",
    "WorkloadForm": "docs/workloads.md",
    "WorkloadsScreen": "docs/workloads.md",
}
"""The page of each screen, by the name of its class."""
_ALERTS_PAGE: Final = SCREEN_PAGES["AlertsScreen"]
_FAULTS_PAGE: Final = "docs/faults.md"


def alert_section(alert: Alert) -> str:
    """The page of an alert and its section; alerts of the host, the driver or the collector have a separate page."""
    label = rule_label(alert.id)
    return _FAULTS_PAGE if label is None else f"{_ALERTS_PAGE}, '{label}'"
