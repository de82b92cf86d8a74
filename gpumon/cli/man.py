"""The manual page: the commands, their options and their help as roff."""

import re
from collections.abc import Iterator
from typing import Final

import click

_NEEDS_ESCAPE: Final = re.compile(r"^([.'])", re.MULTILINE)
_FILES: Final = (
    ("$XDG_CONFIG_HOME/gpumon/config.toml", "The configuration file; gpumon config lists its keys and their values."),
    ("$XDG_CONFIG_HOME/gpumon/workloads/", "Workloads of the user."),
)
_ENVIRONMENT: Final = (
    ("GPUMON_OPTION, GPUMON_COMMAND_OPTION", "Sets an option, such as GPUMON_INTERVAL or GPUMON_DEMO_SPEED."),
    ("NO_COLOR", "If it is set and not empty, the default theme is mono, which uses no colors."),
)


def man_page(group: click.Group, name: str, version: str, mark: str) -> str:
    """The page in roff.

    Args:
        group: The commands.
        name: Name of the program.
        version: Version of the program.
        mark: A comment by which the page is recognized.
    """
    return "\n".join(_lines(group, name, version, mark)) + "\n"


def _lines(group: click.Group, name: str, version: str, mark: str) -> Iterator[str]:
    summary, _, details = (group.help or "").partition("\n\n")
    yield f'.\\" {mark}'
    yield f'.TH {name.upper()} 1 "" "{name} {_text(version)}" "User Commands"'
    yield ".SH NAME"
    yield f"{name} \\- {_text(summary.rstrip('.'))}"
    yield ".SH SYNOPSIS"
    yield f".B {name}"
    yield "[\\fIOPTIONS\\fR] [\\fICOMMAND\\fR [\\fIARGUMENTS\\fR]]"
    yield ".SH DESCRIPTION"
    yield from _paragraphs(summary)
    if details:
        yield ".PP"
        yield from _paragraphs(details)
    yield ".SH OPTIONS"
    yield from _options(group, name)
    yield ".SH COMMANDS"
    for command_name, command in sorted(group.commands.items()):
        yield from _command(command_name, command, name)
    yield ".SH ENVIRONMENT"
    for variable, text in _ENVIRONMENT:
        yield from (".TP", f".B {_text(variable)}", _text(text))
    yield ".SH FILES"
    for path, text in _FILES:
        yield from (".TP", f".I {_text(path)}", _text(text))
    yield ".SH NOTES"
    yield from _paragraphs(group.epilog or "")


def _command(command_name: str, command: click.Command, name: str) -> Iterator[str]:
    context = click.Context(command, info_name=f"{name} {command_name}")
    yield f".SS {name} {command_name}"
    yield f"\\fB{name} {command_name}\\fR {_text(' '.join(command.collect_usage_pieces(context)))}"
    yield ".PP"
    yield from _paragraphs(command.help or "")
    yield from _options(command, command_name)


def _options(command: click.Command, name: str) -> Iterator[str]:
    context = click.Context(command, info_name=name)
    for option in command.get_params(context):
        record = option.get_help_record(context) if isinstance(option, click.Option) else None
        if record is not None:
            names, text = record
            yield from (".TP", f".B {_text(names)}", _text(" ".join(text.split())))


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(text.strip().split("\n\n")):
        if number:
            yield ".PP"
        yield _text(" ".join(paragraph.split()))


def _text(text: str) -> str:
    """A text in which roff finds no instructions."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return _NEEDS_ESCAPE.sub(r"\\&\1", escaped)
