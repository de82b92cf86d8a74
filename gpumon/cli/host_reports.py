"""`gpumon devices`, `gpumon memory` and `gpumon topology`: one report of this host, as text or as JSON."""

import click

from gpumon.cli.attaching import attach_options, chosen_target, require_probes
from gpumon.cli.options import debug_option, options
from gpumon.cli.output import print_json, print_lines, report_width
from gpumon.core.problems import CommandError, ExitCode, Problem


@click.command(short_help="Show the hardware of every GPU.")
@options("devices")
@debug_option
def devices(reference: bool, as_json: bool) -> None:
    """Print the hardware of every GPU: multiprocessors, peak rates, caches, memory, links and MIG; and its data sheet.

    NVML and the CUDA driver are queried once, without a CUDA context and without PyTorch.
    """
    if reference:
        from gpumon.present.text.devices import reference_lines

        print_lines(reference_lines(report_width(120)))
        return
    from gpumon.core.device_properties import to_document
    from gpumon.operations.devices import read_devices

    gpus, problem = read_devices()
    if as_json:
        print_json(to_document(gpus))
    elif gpus:
        from gpumon.operations.devices import measured_rates
        from gpumon.present.text.devices import device_list_lines

        print_lines(device_list_lines(gpus, report_width(120), measured_rates()))
    _raise(problem)


@click.command(short_help="Show what the memory of each GPU is used for.")
@options("memory")
@attach_options
@debug_option
def memory(pid: str | None, attach: bool, load_probe: str, as_json: bool) -> None:
    """Print the memory of each GPU: which process holds it, for what, and what would free it.

    The parts inside a process are known only if the process has a probe: gpumon watch starts a program with one, and
    --pid loads it into a running one, which is named by a PID, a launcher or the name of a job.
    """
    from gpumon.operations.one_shot import sample_with_probes

    if pid is not None:
        require_probes(chosen_target(pid), attach=attach, policy=load_probe)
    sample = sample_with_probes()
    if as_json:
        from gpumon.operations.status import memory_document

        print_json(memory_document(*sample))
    elif sample.frame.devices:
        from gpumon.present.text.memory import memory_report_lines

        click.echo("\n".join(memory_report_lines(sample, report_width(100))))
    _raise(sample.frame.problems.get("driver"))


@click.command(short_help="Show how the GPUs are connected.")
@options("topology")
@debug_option
def topology(as_json: bool) -> None:
    """Print how the GPUs are connected to each other, to the processors and to the network cards, and what is wrong.

    The matrix uses the words of nvidia-smi topo -m. The rates of the NVLinks are those of half a second.
    """
    from gpumon.core.topology import to_document
    from gpumon.operations.topology import read_topology_with_rates

    connections = read_topology_with_rates()
    if as_json:
        from gpumon.health.topology import topology_findings

        print_json({**to_document(connections), "findings": list(topology_findings(connections))})
    elif connections.gpus:
        from gpumon.present.topology import topology_lines

        print_lines(topology_lines(connections, report_width(120)))
    _raise(connections.problems.get("driver"))


def _raise(problem: Problem | None) -> None:
    if problem is not None:
        raise CommandError(problem, ExitCode.MISSING_PREREQUISITE)
