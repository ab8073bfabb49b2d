"""
Questions whose answers the notes themselves give away: from titles, first paragraphs, links and replacements.

They measure a ranking on a person's own notes without anybody writing questions. They flatter rankings that follow links
(the links are the answers), which is why classes are reported apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from ...protocol.messages.common import Chunk
from .entities import name_key
from .readable import readable
from .supersession import is_superseded
from .tokens import STOPWORDS, sentences
from .tokens import stem as stem_of
from .types import Catalog

GoldClass = Literal["title", "body", "bridge", "temporal"]
CLASSES: tuple[GoldClass, ...] = ("title", "body", "bridge", "temporal")
TITLE_CHARS = 8
PARAGRAPH_CHARS = (100, 400)
TARGETS_MIN, TARGETS_MAX = 2, 8
"""A bridge needs two targets to be more than a link; of more than eight the first in the alphabet count."""
SMALL = 20
"""Questions of a class below which its figures are mostly chance."""


class Gold(msgspec.Struct, frozen=True, kw_only=True):
    """One question; ``support`` are paths without suffix."""

    id: str
    cls: str
    question: str
    support: tuple[str, ...]
    answers: tuple[str, ...] = ()


def build(
    notes: Catalog, chunks: Mapping[int, Sequence[Chunk]], per_class: int, pick: Callable[[list[Gold]], list[Gold]]
) -> list[Gold]:
    """
    At most ``per_class`` questions of each class. ``pick`` brings candidates into the order in which they are taken
    (a seeded shuffle). File names that occur twice are left out: what they answer would be ambiguous.
    """
    stems: dict[str, int] = {}
    for card in notes.cards.values():
        stems[stem(card.path)] = stems.get(stem(card.path), 0) + 1
    found: dict[str, list[Gold]] = {cls: [] for cls in CLASSES}
    for note, card in sorted(notes.cards.items(), key=lambda pair: pair[1].path):
        me = key(card.path)
        if stems[stem(card.path)] > 1:
            continue
        if len(card.title) >= TITLE_CHARS:
            found["title"].append(Gold(id="", cls="title", question=card.title, support=(me,)))
        paragraph = first_paragraph(chunks.get(note, ()))
        if paragraph:
            found["body"].append(Gold(id="", cls="body", question=paragraph, support=(me,)))
            edges = {edge.target for edge in notes.out_edges(note)}
            targets = sorted({key(notes.cards[t].path) for t in edges if t in notes.cards})
            if len(targets) >= TARGETS_MIN:
                found["bridge"].append(
                    Gold(id="", cls="bridge", question=paragraph, support=tuple(targets[:TARGETS_MAX]))
                )
        newer = [edge.target for edge in notes.out_edges(note) if edge.kind == "superseded_by"]
        if newer and is_superseded(card, notes):
            replaced = Gold(id="", cls="temporal", question=card.title, support=(key(notes.cards[newer[0]].path),))
            found["temporal"].append(replaced)
    chosen: list[Gold] = []
    for cls in CLASSES:
        for number, question in enumerate(pick(found[cls])[:per_class], 1):
            chosen.append(msgspec.structs.replace(question, id=f"{cls}-{number:03}"))
    return chosen


def first_paragraph(chunks: Iterable[Chunk]) -> str:
    """The first paragraph of prose of 100 to 400 characters, as it reads; '' when there is none."""
    low, high = PARAGRAPH_CHARS
    for chunk in chunks:
        for block in chunk.text.split("\n\n"):
            text = " ".join(readable(block).split())
            if low <= len(text) <= high and block.lstrip()[:1] not in ("#", "|", ">", "`", "~", "-", "*", "+"):
                return text
    return ""


def key(path: str) -> str:
    """How a note is named in a gold file: its path without suffix."""
    return path.rpartition(".")[0] or path


def stem(path: str) -> str:
    return key(path).rpartition("/")[2].lower()


def small_classes(questions: Iterable[Gold]) -> dict[str, int]:
    """Classes with fewer than SMALL questions, and how many they have."""
    counts: dict[str, int] = {}
    for question in questions:
        counts[question.cls] = counts.get(question.cls, 0) + 1
    return {cls: count for cls, count in counts.items() if count < SMALL}


ABSENT_FACTS = (
    "What is the shoe size of {}?", "Which blood group does {} have?", "What is the licence plate of {}?",
    "What did {} cost in Portugal?", "When is the wedding anniversary of {}?", "Which zodiac sign is {}?",
    "Who painted the portrait of {}?", "What is the maiden name behind {}?", "How many siblings does {} have?",
    "Which opera was {} named after?",
)  # fmt: skip
"""Facts that notes of work hardly hold; a question is used only when its telling word occurs in no note."""
ABSENT_NAMES = (
    "Barnaby Quistgaard", "Ottoline Vexley", "Thaddeus Mornay", "Project Zephyrine", "Project Quokkatron",
    "Ludmila Farquharson", "Corbinian Achterkamp", "Project Umbrellabird", "Wexcombe Delacroix", "Isolde Trevanion",
)  # fmt: skip
ABSENT_FRAMES = ("Who leads {}?", "When did {} start?", "What did {} decide?", "Where is {} based?")


def absent(
    notes: Catalog, words: frozenset[str], per_class: int, pick: Callable[[list[Gold]], list[Gold]]
) -> list[Gold]:
    """Questions that the notes do not answer: facts of their subjects that nobody writes down, and names made up."""
    facts = []
    for card in notes.cards.values():
        if not 2 <= len(card.title.split()) <= 4:
            continue
        for frame in ABSENT_FACTS:
            telling = [word for word in name_key(frame).split() if len(word) > 4 and word not in STOPWORDS["en"]]
            if not any(stem_of(word) in words for word in telling):
                facts.append(Gold(id="", cls="absent_fact", question=frame.format(card.title), support=()))
    names = [
        Gold(id="", cls="absent_name", question=frame.format(name), support=())
        for name in ABSENT_NAMES
        if not any(stem_of(word) in words for word in name_key(name).split()[-1:])
        for frame in ABSENT_FRAMES
    ]
    return [*pick(facts)[:per_class], *pick(names)[:per_class]]


def asked_of_subjects(
    notes: Catalog, chunks: Mapping[int, Sequence[Chunk]], per_class: int, pick: Callable[[list[Gold]], list[Gold]]
) -> list[Gold]:
    """Answerable questions as people type them: a note's title and three words of one of its sentences."""
    found = []
    for note, card in sorted(notes.cards.items()):
        own = set(name_key(card.title).split())
        for chunk in list(chunks.get(note, ()))[:3]:
            for start, end in sentences(chunk.text)[:4]:
                words = [w for w in name_key(readable(chunk.text[start:end])).split() if len(w) > 3 and w not in own]
                words = [word for word in words if word not in STOPWORDS["en"]]
                if len(words) >= 3 and 2 <= len(card.title.split()) <= 6:
                    question = f"{card.title} {' '.join(words[-3:])}"
                    found.append(Gold(id="", cls="subject", question=question, support=(key(card.path),)))
    return pick(found)[:per_class]
