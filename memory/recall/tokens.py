"""
One tokenizer for both sides of full text: what goes into FTS5, and what a question becomes.

FTS5 itself splits at everything but letters and digits (unicode61) and stems English (porter). What it cannot do is
done here, in the same way for notes and for questions: compatibility forms, accents, and scripts that put no spaces
between words, which become overlapping pairs of characters (``適者生存`` -> ``適者 者生 生存 存``). The last character
of a run stands alone too, so that a one-character question is a prefix search that finds every place.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import Any, Literal

import msgspec

from .stopwords import LISTS

MAX_TERMS = 64
"""A pasted page is a question too; the first words of it decide, and each term costs one FTS query."""
MAX_PHRASE = 32
"""Parts of one word that make its phrase: no name has more, and one of thousands takes longer than anybody waits."""
MAX_STEM_BYTES = 64
"""FTS5's porter leaves longer tokens as they are (FTS5_PORTER_MAX_TOKEN)."""
# FTS5 has the two rules that Porter added later (-bli, -logi); Snowball's "porter" has not. Both want a stem with a
# vowel and a consonant after it before them.
_MEASURE = re.compile(r"[aeiouy][^aeiou]")
_LOGY = re.compile(r"log(?:y|i|ies)$")
MAX_SENTENCE_CHARS = 600
"""A sentence model sees about 256 tokens; a longer "sentence" is a list or a log and is cut at white space."""

_ACCENTS = re.compile("[\u0300-\u036f]+")
_HAN_KANA_HANGUL = (
    "\u1100-\u11ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    "\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_THAI_LAO_KHMER_MYANMAR = "\u0e00-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f"
_UNSPACED = re.compile(f"[{_HAN_KANA_HANGUL}{_THAI_LAO_KHMER_MYANMAR}]+")
# Vowel signs and tone marks are separators to unicode61; without them pairs are pairs of letters.
_UNSPACED_MARKS = re.compile(
    "[\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ecd\u102b-\u103e\u17b4-\u17d3\u3099\u309a]+"
)
_HIRAGANA_ONLY = re.compile("[\u3040-\u309f\u30fc]+")
_NOT_WORD = re.compile(r"[\W_]+")
_TOKEN = re.compile(r"[^\W_]+")
_BLANKS = {code: " " for code in range(128) if not chr(code).isalnum()}
_BARE = bytes(ord(chr(code).lower()) if code not in _BLANKS and code < 128 else ord(" ") for code in range(256))
_APOSTROPHES = str.maketrans("", "", "'\u2019\u02bc")
_PUNCTUATION = ".,;:!?¿¡()[]{}\"'«»“”„…"
_CLITICS = frozenset(("s", "t", "d", "m", "re", "ve", "ll", "l", "qu", "n", "c", "j"))


class Term(msgspec.Struct, frozen=True, kw_only=True):
    """
    One thing to look for.

    ``fts`` is a complete FTS5 expression (a quoted string, with ``*`` for a prefix): never syntax, whatever was typed.
    ``stems`` are the tokens as they stand in the fts5vocab table: the document frequency of a word is that of its stem;
    of a phrase, at most the smallest of its parts.
    """

    text: str
    fts: str
    stems: tuple[str, ...]
    kind: Literal["word", "phrase", "prefix"] = "word"

    @property
    def stem(self) -> str:
        """The stem of a word, '' for a phrase or prefix: their document frequency is not in the table."""
        return self.stems[0] if self.kind == "word" else ""


def fold(text: str) -> str:
    """The form in which names are compared: NFKC, casefolded, Latin, Greek and Cyrillic accents removed."""
    if text.isascii():
        return text.lower()
    # Casefolding can undo NFKC, hence twice; marks outside U+0300-036F (kana, Thai, Indic) carry meaning and stay.
    text = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text).casefold())
    return unicodedata.normalize("NFKC", _ACCENTS.sub("", text))


def words_of(folded: str) -> list[str]:
    """The runs of letters and digits in a folded text."""
    if folded.isascii():
        return folded.translate(_BLANKS).split()  # a quarter of the time of the pattern
    return _TOKEN.findall(folded)


def bare(text: str) -> str:
    """
    The words of an ASCII text as ``words_of`` finds them, each where it stands: character ``i`` of the text is ``i + 1`` of this.
    All else is blanks, one at both ends. Characters that are not ASCII are blanks too, whatever they are.
    """
    return f" {text.encode('ascii', 'replace').translate(_BARE).decode('ascii')} "


STOPWORDS = {language: frozenset(fold(words).split()) for language, words in LISTS.items()}


def index_text(text: str) -> str:
    """What is handed to FTS5 in place of ``text``. ASCII is returned as it is: FTS5 folds its case."""
    if text.isascii():
        return text.replace("\0", " ")
    # FTS5's tables of Unicode are old: to them a new emoji is a letter, and glues the words beside it together.
    words = _NOT_WORD.sub(" ", _UNSPACED_MARKS.sub("", fold(text)))
    return _UNSPACED.sub(lambda run: f" {' '.join(_pairs(run[0], last=True))} ", words)


def query_terms(text: str, limit: int = MAX_TERMS) -> list[Term]:
    """
    The terms of a question, in order, without repeats and without stop words; only stop words: those.

    Words that FTS5 splits (``1.0.21``, ``docs/setup.md``, ``snake_case``) give a phrase first, then their longer parts.
    """
    words = _UNSPACED_MARKS.sub("", fold(text)).split()
    common = _common_words(words) - _shouted(text)
    kept: dict[str, Term] = {}
    dropped: dict[str, Term] = {}
    for word in words:
        for term in _terms_of(word):
            plain = term.text.translate(_APOSTROPHES)
            into = dropped if plain in common and term.kind == "word" else kept
            into.setdefault(term.fts, term)
        if len(kept) >= limit:
            break
    return list((kept or dropped).values())[:limit]


@functools.lru_cache(maxsize=16_384)
def stem(token: str) -> str:
    """``token`` (folded, one FTS5 token) as FTS5's porter tokenizer stores it."""
    if len(token) < 3 or len(token.encode()) > MAX_STEM_BYTES:
        return token
    return _stem(token)


def _stem(token: str) -> str:
    if token.endswith(("bly", "bli")) and _MEASURE.search(token[:-3]):
        token = token[:-1] + "e"
    elif (ending := _LOGY.search(token)) and _MEASURE.search(token[: ending.start()]):
        token = token[: ending.start()] + "log"
    # A stemmer holds the word that it works on: two threads must not share one, and a new one costs a microsecond.
    return str(_stemmers()("porter", 0).stemWord(token))


@functools.cache
def _stemmers() -> Any:
    # Processes that never stem (watcher, writer) do without 2 ms of their start and 3 MB of code.
    from Stemmer import Stemmer  # type: ignore[import-not-found]

    return Stemmer


def _pairs(run: str, *, last: bool) -> list[str]:
    pairs = [run[i : i + 2] for i in range(len(run) - 1)]
    return [*pairs, run[-1:]] if last else pairs


def _terms_of(word: str) -> list[Term]:
    """Terms of one white-space delimited, folded word: parts in unspaced scripts, then the rest."""
    terms: list[Term] = []
    at = 0
    for run in _UNSPACED.finditer(word):
        terms += _spaced_terms(word[at : run.start()])
        terms += _unspaced_terms(run[0])
        at = run.end()
    return terms + _spaced_terms(word[at:])


def _spaced_terms(word: str) -> list[Term]:
    tokens = _TOKEN.findall(word)
    if not tokens:
        return []
    if len(tokens) > 1 and any(mark in word for mark in "'\u2019\u02bc"):
        whole = "".join(tokens)
        if whole in STOPWORDS["en"]:
            return [_word(whole)]
        tokens = [token for token in tokens if token not in _CLITICS] or tokens
    if len(tokens) == 1:
        return [_word(tokens[0])]
    whole = " ".join(tokens[:MAX_PHRASE])
    phrase = Term(text=whole, fts=f'"{whole}"', stems=tuple(stem(t) for t in tokens[:MAX_PHRASE]), kind="phrase")
    return [phrase, *(_word(token) for token in tokens if len(token) > 2 or (len(token) == 2 and token.isdigit()))]


def _unspaced_terms(run: str) -> list[Term]:
    pairs = _pairs(run, last=False)
    if not pairs:
        return [Term(text=run, fts=f'"{run}"*', stems=(run,), kind="prefix")]
    # Pairs of hiragana inside a longer run are endings and particles: they say little and match everywhere.
    telling = [pair for pair in pairs if not _HIRAGANA_ONLY.fullmatch(pair)]
    return [_word(pair) for pair in telling or pairs]


def _word(token: str) -> Term:
    return Term(text=token, fts=f'"{token}"', stems=(stem(token),))


def _shouted(text: str) -> frozenset[str]:
    """Words in capitals where others are not: IT, US and WHO are names, whatever ``it``, ``us`` and ``who`` are."""
    if text.upper() == text:
        return frozenset()
    bare = (word.strip(_PUNCTUATION) for word in text.split())
    return frozenset(fold(word) for word in bare if len(word) > 1 and word.isupper())


def _common_words(words: list[str]) -> frozenset[str]:
    """
    Stop words that apply to these words: the English ones always, those of another language when it shows.

    "die" is German for "the": one such word proves nothing, two different ones or one that is not ASCII do.
    """
    bare = {word.strip(_PUNCTUATION).translate(_APOSTROPHES) for word in words}
    common = STOPWORDS["en"]
    for language, stopwords in STOPWORDS.items():
        hits = bare & stopwords
        if language != "en" and (len(hits) > 1 or any(not hit.isascii() for hit in hits)):
            common = common | stopwords
    return common


_ABBREVIATIONS = frozenset(
    [
        "mr",
        "mrs",
        "ms",
        "dr",
        "prof",
        "sr",
        "jr",
        "st",
        "vs",
        "etc",
        "eg",
        "ie",
        "cf",
        "al",
        "nr",
        "fig",
        "vol",
        "pp",
        "approx",
        "dept",
        "est",
        "inc",
        "ltd",
        "co",
        "bzw",
        "usw",
        "ca",
        "z.b",
        "d.h",
        "u.a",
        "e.g",
        "i.e",
        "a.k.a",
        "p.ex",
        "ex",
        "av",
        "sra",
        "dra",
        "т.е",
        "т.д",
        "т.п",
        "г",
        "ул",
        "см",
    ]
)
_NOT_SHORTENED = "".join(
    rf"(?<!(?:{'|'.join(re.escape(word) for word in sorted(_ABBREVIATIONS) if len(word) == length)})\.)"
    for length in sorted({len(word) for word in _ABBREVIATIONS if len(word) >= 3})
)
_BREAK = re.compile(
    rf"""
    [\n.!?…。！？｡؟۔।॥] (?:                                              # one set: a search for alternatives is slower
        # A full stop behind what is no abbreviation and before no small letter: most ends, without a step of Python each.
        (?: (?<= [a-zß-öø-ÿа-яё]{{3}} \.) {_NOT_SHORTENED}
          | (?<= [])`"'*_%/>] \.) | (?<= -\d\d \.) | (?<= [a-z][ ]\d\d\d\d \.) )
        \s+ (?=[!-`{{-~À-ÖØ-ÞА-Я“„«]|\Z)
      | (?P<hard>
            (?<=\n) [ \t]* (?: \n\s*                                      # an empty line ends a paragraph
                             | (?=[-*+>|]|\#{{1,6}}[ ]|\d{{1,9}}[.)][ ]|```|~~~) )  # so does an item, a row, a heading
          | (?<=[。！？｡؟۔।॥]) [。！？｡؟۔।॥]* ["'”’»」』）)\]]* \s* )           # full stops that no space needs to follow
      | (?P<stop>
            (?<=[.!?…]) (?<![.!?…]{{2}})                                 # a row of dots is tried once, not from each dot
            [.!?…]* ["'”’»)\]*_]* (?=\s) )                              # those that need one
    )
    """,
    re.VERBOSE,
)
"""Ends of sentences with the white space behind them, except behind a ``stop``, which is for ``_ends_sentence`` to decide."""
_SPACE = re.compile(r"\s*")


def sentences(text: str) -> list[tuple[int, int]]:
    """
    Slices ``(char_from, char_to)`` of ``text``, one per sentence, in order, without surrounding white space.

    Together they hold every character that is not white space. Line breaks inside a paragraph do not end a sentence.
    """
    spans: list[tuple[int, int]] = []
    start = _end_of_space(text, 0)
    for match in _BREAK.finditer(text):
        end, after = match.span()
        match match.lastgroup:
            case None:
                end += 1
            case "hard":
                end = start + len(text[start:after].rstrip())
            case _:
                if not _ends_sentence(text, start, match):
                    continue
                end, after = after, _end_of_space(text, after)
        if end - start > MAX_SENTENCE_CHARS:
            spans += _cut(text, start, end)
        elif end > start:
            spans.append((start, end))
        start = after
    spans += _cut(text, start, start + len(text[start:].rstrip()))
    return spans


def _end_of_space(text: str, start: int) -> int:
    space = _SPACE.match(text, start)
    assert space is not None  # it may be empty
    return space.end()


def _ends_sentence(text: str, start: int, match: re.Match[str]) -> bool:
    following = text[match.end() : match.end() + 8].lstrip()
    if following[:1].islower():
        return False
    if match[0] != ".":
        return True
    before = text[max(start, match.start() - 12) : match.start()].split()
    word = before[-1].lower().lstrip("([\"'«“„*_") if before else ""
    if word == "no" and following[:1].isdigit():
        return False
    # A single letter is an initial ("J. Doe"), a number at a line's start an item ("1. First").
    return not (word in _ABBREVIATIONS or (len(word) == 1 and word.isalpha()) or (word.isdigit() and len(before) == 1))


def _cut(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """A trimmed slice of the text in pieces of at most MAX_SENTENCE_CHARS, cut at white space where there is any."""
    spans: list[tuple[int, int]] = []
    while end - start > MAX_SENTENCE_CHARS:
        cut = text.rfind(" ", start + MAX_SENTENCE_CHARS // 2, start + MAX_SENTENCE_CHARS)
        cut = cut if cut > 0 else start + MAX_SENTENCE_CHARS
        spans.append((start, cut))
        start = _end_of_space(text, cut)
    if end > start:
        spans.append((start, end))
    return spans
