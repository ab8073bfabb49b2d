"""What a question asks for, read from its words alone: names, intent, time, wanted kind of answer."""

from __future__ import annotations

import datetime
import functools
import re
from collections.abc import Collection
from typing import Literal

import msgspec

from .dates import Period, periods_in
from .entities import Name, find_names, name_key
from .tokens import Term, fold, query_terms
from .tokens import stem as stem_of
from .types import Catalog

Intent = Literal["name", "exact", "keywords", "question", "sessions"]
Time = Literal["", "current", "history", "recent", "when"]
Wants = Literal["", "date", "person", "number", "place", "reason"]

READ_CHARS = 1000
"""Of a pasted page so much is read for names and intent; the model reads no more of it either."""

_CURRENT = re.compile(
    r"\b(current(ly)?|now(adays)?|latest|newest|most recent|up[- ]to[- ]date|today|at present|as of now|still|these days"
    r"|actual(mente)?|atual(mente)?|vigente|aktuell\w*|derzeit\w*|momentan|heute|jetzt)\b"
    r"|сейчас|текущ\w*|актуальн\w*|нынешн\w*|现在|目前|当前|最新|現在|今の|いま|지금|현재|최신"
)
_HISTORY = re.compile(
    r"\b(original(ly)?|initial(ly)?|previous(ly)?|former(ly)?|earlier|old(er)?|first|before|used to|was|were|history|past"
    r"|superseded|replaced|no longer|back then|prior|anterior(mente)?|antes|antig[ao]s?|ursprünglich\w*|früher\w*"
    r"|vorher\w*|damals|ehemal\w*)\b"
    r"|раньше|прежн\w*|первоначальн\w*|старый|старая|以前|原来|最初|之前|元の|当初|이전|원래|처음"
)
_RECENT = re.compile(
    r"\b(recent(ly)?|lately|last (few )?(day|week|month)s?|this (week|month)|newly|what'?s new"
    r"|recentemente|últim[ao]s?|kürzlich|neulich|zuletzt)\b|недавно|последн\w*|最近|近日|최근"
)
_SESSIONS = re.compile(
    r"\b(last time|last session|previous session|earlier session|yesterday|this morning|we left off|where (was|were) (i|we)"
    r"|where did (i|we) (stop|leave)|what did (i|we|you) (do|change|work|try|finish|say|discuss)|were (i|we) working"
    r"|was (i|we) working|have (i|we) (done|tried)|pick(ed)? up where|da última vez|ontem|letztes mal|gestern)\b"
    r"|вчера|в прошлый раз|上次|昨天|昨日|前回|어제|지난번"
)
_WHEN = re.compile(
    r"^\s*(when|since when|until when|by when|quando|wann|cuándo|quand)\b"
    r"|\b(what|which|in what|in which|on what|on which) (\w+ )?(date|day|month|year|time)\b|\bhow long ago\b"
    r"|когда|何時|いつ|什么时候|何时|언제"
)
_WANTS: tuple[tuple[Wants, re.Pattern[str]], ...] = (
    ("date", re.compile(r"\b(deadline|due|birthday|anniversary|release date|start date|schedule[d]?)\b|期限|截止|締切|마감")),
    ("number", re.compile(r"\bhow (many|much|large|big|long|often|old|far|tall)\b"
                          r"|\b(version|budget|number|amount|percentage|port|price|cost|size|count|limit)\b|多少|几个|いくつ|얼마|몇")),
    ("person", re.compile(r"\b(who|whom|whose|quem|wer|quién|qui)\b|кто|谁|誰|누가|누구")),
    ("place", re.compile(r"\b(where|onde|wo|dónde|où)\b|где|哪里|どこ|어디")),
    ("reason", re.compile(r"\b(why|how come|por que|warum|wieso|pourquoi)\b|почему|为什么|なぜ|どうして|왜")),
)  # fmt: skip
_QUESTION = re.compile(
    r"^\s*(who|whom|whose|what|which|when|where|why|how|is|are|was|were|do|does|did|can|could|should|would|will|has|have|had"
    r"|in (what|which)|on (what|which)|for (what|which|whom)|under (what|which)|at (what|which)|from (what|which|where)"
    r"|by (what|which|whom|when)|to (what|which|whom)|tell me|explain|describe|show me|find|list"
    r"|qual|quais|quem|quando|onde|como|wer|was|wann|wo|wie|welche\w*|warum|qui|que|cómo|cuál)\b"
    r"|[?？]|吗|呢|什么|か。?$"
)
_EXACT = re.compile(
    r"[\"“”„«»`][^\"“”„«»`]{2,}[\"“”„«»`]"              # quoted
    r"|\b\w+[_/\\]\w+|\b[\w-]+\.(py|rs|go|js|ts|tsx|md|toml|yaml|yml|json|sh|sql|c|cpp|h|java|rb|lock|cfg|ini)\b"
    r"|\b[A-Z][A-Z0-9]+-\d+\b|#\d+\b|\b[a-z]+[A-Z]\w+\b|\b(?=[0-9a-f]*\d)[0-9a-f]{7,40}\b|\b\w+\(\)|--?[a-z][\w-]+\b|::"
    r"|\b\w*(Error|Exception)\b|\b[A-Z]{2,}_[A-Z_]+\b|\bv?\d+\.\d+(\.\d+)?\b"
)  # fmt: skip
_SCAFFOLD_WORDS = """
    might mention mentioned mentions type types kind kinds sort sorts done consider considered describe described feel feels
    many much different various way ways thing things besides area areas currently current recently recent now both likely
    ever make made get got give given go went going exist exists meant tell say said called name named use used
"""
SCAFFOLD = frozenset(stem_of(word) for word in _SCAFFOLD_WORDS.split())
"""Stems of English words that frame a question more often than they name what is asked for; they weigh less."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question, taken apart. Made by ``analyse``; every field can be shown to a person."""

    text: str
    today: datetime.date
    terms: tuple[Term, ...] = ()
    """What full text looks for; ``TextEvidence`` is keyed by ``Term.text``."""
    names: tuple[Name, ...] = ()
    intent: Intent = "question"
    time: Time = ""
    wants: Wants = ""
    periods: tuple[Period, ...] = ()
    """Dates and months that the question mentions."""
    kinds: tuple[str, ...] = ()
    """Kinds of note that the question mentions ("which *tool*"), as the catalog spells them."""
    name_stems: frozenset[str] = frozenset()
    """Stems of the words inside names: the rest of the terms says what is asked *about* them."""
    probes: tuple[str, ...] = ()
    """What is embedded beside the question: at most the residue, the question without the names of known notes. It tells what
    a known thing lacks (confidence); it does not order notes. Costs one run of the model, 3-6 ms."""

    @property
    def attributes(self) -> tuple[Term, ...]:
        """Word terms outside names."""
        return tuple(term for term in self.terms if term.kind == "word" and term.stem not in self.name_stems)


def analyse(text: str, catalog: Catalog, today: datetime.date) -> Question:
    """Take a question apart. Costs a few dozen dictionary look-ups; depends on nothing but its arguments."""
    terms = tuple(query_terms(text))
    head = text[:READ_CHARS]
    folded = " ".join(fold(head).split())
    names = find_names(head, catalog)
    terms += _phrases(names)
    residue = _residue(head, names)
    return Question(
        text=text,
        today=today,
        terms=terms,
        names=names,
        intent=_intent(head, folded, terms, names),
        time=_time(folded),
        wants=next((wants for wants, pattern in _WANTS if pattern.search(folded)), ""),
        periods=periods_in(folded, today),
        kinds=_kinds(folded, names, catalog.kinds),
        name_stems=frozenset(stem_of(word) for name in names for word in name.key.split()),
        probes=(residue,) if residue else (),
    )


def _intent(text: str, folded: str, terms: tuple[Term, ...], names: tuple[Name, ...]) -> Intent:
    if _SESSIONS.search(folded):
        return "sessions"
    asks = bool(_QUESTION.search(folded))
    named = {word for name in names if name.source != "proper" for word in name.key.split()}
    if not asks and terms and all(set(term.text.split()) <= named for term in terms):
        return "name"
    if _EXACT.search(text):
        return "exact"
    return "question" if asks or len(terms) > 5 else "keywords"


def _time(folded: str) -> Time:
    # "the current X" wins over "was": people ask "what was the current plan again".
    if _CURRENT.search(folded):
        return "current"
    if _RECENT.search(folded):
        return "recent"
    history = _HISTORY.search(folded)
    if history and history[0] not in ("was", "were", "first", "before"):
        return "history"
    if _WHEN.search(folded):
        return "when"
    return "history" if history else ""


def _kinds(folded: str, names: tuple[Name, ...], kinds: Collection[str]) -> tuple[str, ...]:
    """Kinds of note that are asked for: "which project …", not the word in "Project Heron"."""
    words = f" {name_key(folded)} "
    for name in names:
        words = words.replace(f" {name.key} ", "  ")
    stems = {stem_of(word) for word in words.split()}
    return tuple(kind for kind in kinds if stems.issuperset(_stems_of(kind)))


@functools.lru_cache(maxsize=256)
def _stems_of(kind: str) -> tuple[str, ...]:
    return tuple(map(stem_of, name_key(kind).split()))


def _phrases(names: tuple[Name, ...]) -> tuple[Term, ...]:
    """Unknown names of several words, as phrases: whether the words stand together decides whether the notes know them."""
    return tuple(
        Term(text=f"“{name.key}”", fts=f'"{name.key}"', stems=tuple(map(stem_of, name.key.split())), kind="phrase")
        for name in names
        if name.source == "proper" and " " in name.key
    )


def _residue(text: str, names: tuple[Name, ...]) -> str:
    known = [name.text for name in names if name.notes and name.source == "title"]
    if not known:
        return ""
    rest = text
    for name in known:
        rest = _without(rest, name)
    rest = " ".join(rest.split())
    return rest if len(name_key(rest).split()) > 1 else ""


def _without(text: str, name: str) -> str:
    """A pattern for a name would have to be compiled for every question."""
    first, *others = text.split(name)
    return first + "".join(other[2:] if other.startswith(("'s", "’s")) else other for other in others)
