"""What was found, told in words: headings, paragraphs and code, for a terminal, a screen or a document to lay out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from gpumon.diagnosis.explanation import Explanation, Match, OomStory
from gpumon.diagnosis.known import Context, Fix, KnownError
from gpumon.diagnosis.memory_cause import MemoryCause, cause_sentence, figure_rows

_CONTEXTS: Final = {
    Context.ALIVE: "The process can go on if it catches the error: its CUDA context is whole.",
    Context.DEAD: "The process must be started again: every later CUDA call of it fails.",
    Context.RESET: "Starting the process again is not enough: first the GPU needs a reset, or the machine a reboot.",
    Context.UNKNOWN: "The message does not tell whether the process can go on; to be safe, start it again.",
    Context.NOT_APPLICABLE: "No CUDA context is lost: mend the cause, then start again.",
}
NOTHING_FOUND: Final = (
    "If there is an error of CUDA, PyTorch, NCCL or the driver in it, gpumon should know it: please open an issue with "
    "its text, the twenty lines around it, and the versions of torch and of the driver."
)


class BlockKind(Enum):
    """How a piece of text is laid out."""

    PARAGRAPH = "paragraph"
    ITEM = "item"
    """One of a list; it is wrapped under its own beginning."""
    CODE = "code"
    """To copy, so it is never wrapped."""
    QUOTE = "quote"
    """A line of the log."""
    ROW = "row"
    """A name and a value, parted by a tab."""


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A piece of text.

    Attributes:
        kind: How it is laid out.
        text: What it says.
    """

    kind: BlockKind
    text: str


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands below it.

    Attributes:
        heading: A few words.
        blocks: In order, at least one.
    """

    heading: str
    blocks: tuple[TextBlock, ...]


def sections(explanation: Explanation) -> list[Section]:
    """The first cause in full, then what else the log has; nothing if nothing was found."""
    cause = explanation.cause
    if cause is None:
        return []
    rest = explanation.matches[1:]
    told = [_happened(cause), *_figures(cause), *_evidence(cause), *_remedies(cause.error, cause.fixes)]
    if rest:
        told.append(Section("Also in the log", tuple(_paragraph(_also(match)) for match in rest)))
    return told


def error_sections(error: KnownError) -> list[Section]:
    """An entry of the catalogue."""
    happened = Section(_heading(error), (_paragraph(error.summary), *_causes(error)))
    return [happened, *_remedies(error, error.fixes)]


def _happened(match: Match) -> Section:
    blocks = [_paragraph(match.error.summary), TextBlock(BlockKind.QUOTE, match.text), _paragraph(_where(match))]
    if match.memory_cause in {None, MemoryCause.UNKNOWN}:
        blocks += _causes(match.error)
    return Section(_heading(match.error), tuple(blocks))


def _heading(error: KnownError) -> str:
    return f"{error.title} [{error.id}]"


def _where(match: Match) -> str:
    """Its place in the log, and how often it is there; or which process left the file."""
    if match.story is not None:
        return match.story.place
    rank = "" if match.rank is None else f", rank {match.rank}"
    moment = "" if match.moment is None else f", {match.moment.text}"
    ranks = f", on {_ranks_text(match.ranks)}" if len(match.ranks) > 1 else ""
    often = "" if match.count == 1 else f" {match.count} lines say so{ranks}."
    return f"Line {match.line}{rank}{moment}.{often}"


def _ranks_text(ranks: Sequence[int]) -> str:
    """Ranks with runs of neighbours drawn together: ``ranks 0-7, 12``."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], rank]
        else:
            runs.append([rank])
    return "ranks " + ", ".join("-".join(str(end) for end in run) for run in runs)


def _causes(error: KnownError) -> Iterator[TextBlock]:
    if error.causes:
        yield _paragraph("What leads to it, most frequent first:")
        yield from (TextBlock(BlockKind.ITEM, cause) for cause in error.causes)


def _figures(match: Match) -> Iterator[Section]:
    if match.story is not None:
        yield from _story(match.story)
    elif match.memory is not None:
        gpu = [("GPU", match.figures["gpu"])] if "gpu" in match.figures else []
        rows = [TextBlock(BlockKind.ROW, f"{name}\t{value}") for name, value in (*gpu, *figure_rows(match.memory))]
        sentence = cause_sentence(match.memory_cause or MemoryCause.UNKNOWN, match.memory)
        yield Section("What the numbers say", (_paragraph(sentence), *rows))
    elif match.figures:
        names = ((name.replace("_", " "), value) for name, value in match.figures.items())
        rows = [TextBlock(BlockKind.ROW, f"{name}\t{value}") for name, value in names]
        yield Section("What the message names", tuple(rows))


def _story(story: OomStory) -> Iterator[Section]:
    rows = (TextBlock(BlockKind.ROW, f"{name}\t{value}") for name, value in story.rows)
    yield Section("What the numbers say", (*map(_paragraph, story.sentences), *rows))
    if story.stack:
        yield Section("Who asked, innermost first", tuple(TextBlock(BlockKind.CODE, call) for call in story.stack))


def _evidence(match: Match) -> Iterator[Section]:
    if match.evidence:
        rows = tuple(TextBlock(BlockKind.ROW, f"{name}\t{text}") for name, text in match.evidence.items())
        yield Section("What this machine says now", rows)


def _remedies(error: KnownError, fixes: Sequence[Fix]) -> Iterator[Section]:
    yield Section("Go on or start again", (_paragraph(_CONTEXTS[error.context]),))
    yield Section("What mends it, best first", tuple(_fix_blocks(fixes)))
    if error.empty_cache:
        yield Section("What torch.cuda.empty_cache() does", (_paragraph(error.empty_cache),))
    if error.see_more:
        yield Section("To see more", tuple(_fix_blocks(error.see_more)))
    if error.sources:
        yield Section("Source", tuple(TextBlock(BlockKind.CODE, source) for source in error.sources))


def _fix_blocks(fixes: Sequence[Fix]) -> Iterator[TextBlock]:
    for fix in fixes:
        yield TextBlock(BlockKind.ITEM, fix.text)
        if fix.code:
            yield TextBlock(BlockKind.CODE, fix.code)


def _also(match: Match) -> str:
    role = ", which follows from another error" if match.error.is_echo else ", a warning" if match.is_warning else ""
    return f"{_heading(match.error)}{role}. {_where(match)}"


def _paragraph(text: str) -> TextBlock:
    return TextBlock(BlockKind.PARAGRAPH, text)
