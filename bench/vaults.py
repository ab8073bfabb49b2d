"""
Vaults of any size, made up: what latency and memory are measured on.

Words follow Zipf's law over an invented vocabulary of about 65,000 (as a large vault's do), notes link to each other with
a few hubs, carry frontmatter, headings, tags and dates. The same size and seed give the same files.
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import random
from pathlib import Path

VOCABULARY = 65_000
WORDS_PER_CHUNK = 125
"""About 200 tokens, which is what the chunker aims at."""
CHUNKS_PER_NOTE = 2
PER_FOLDER = 100
TAGS = ("work", "work/billing", "home", "idea", "meeting", "reference", "draft", "people", "tools", "ops")
KINDS = ("note", "decision", "meeting", "person", "tool", "project")
_CLUSTERS = "bl br cl cr dr fl fr gl gr pl pr sk sl sp st tr".split()
_SYLLABLES = [
    "".join(pair)
    for heads, tails in (("bcdfghklmnprstvz", "aeiou"), ("aeiou", "bcdfghklmnprstvz"), (_CLUSTERS, "aeiou"))
    for pair in itertools.product(heads, tails)
]


class Words:
    """Words by Zipf's law."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.all = [self._invent(rank) for rank in range(VOCABULARY)]
        self._reach = list(itertools.accumulate(1 / (rank + 2.7) for rank in range(VOCABULARY)))

    def _invent(self, rank: int) -> str:
        """Common words are short; the syllables spell the rank."""
        base = len(_SYLLABLES)
        parts = [_SYLLABLES[rank % base]]
        while rank := rank // base:
            parts.append(_SYLLABLES[rank % base])
        return "".join(parts) + ("n" if len(parts) == 1 else "")

    def draw(self, count: int) -> list[str]:
        reach, last = self._reach, self._reach[-1]
        return [self.all[bisect.bisect_left(reach, self._rng.random() * last)] for _ in range(count)]

    def middling(self, count: int) -> list[str]:
        """Words that are neither everywhere nor nowhere: what questions are made of."""
        return [self.all[self._rng.randrange(200, 5000)] for _ in range(count)]


def notes(chunks: int, seed: int = 1) -> dict[str, str]:
    """Path -> text of a vault with about ``chunks`` chunks."""
    rng = random.Random(seed)
    words = Words(rng)
    count = max(1, chunks // CHUNKS_PER_NOTE)
    titles = [f"{' '.join(words.middling(2)).title()} {number}" for number in range(count)]
    return {
        f"area{number // PER_FOLDER:03}/note{number}.md": _note(rng, words, titles, number) for number in range(count)
    }


def questions(count: int, seed: int = 1) -> list[str]:
    """Questions of three to eight words in the vault's language, some with the name of a note."""
    rng = random.Random(seed)
    words = Words(rng)
    asked = random.Random(seed + 1)
    return [
        f"what is the {' '.join(words.middling(asked.randrange(2, 6)))} of {' '.join(words.draw(2))}?"
        for _ in range(count)
    ]


def write(folder: Path, chunks: int, seed: int = 1) -> int:
    """Write the vault into ``folder`` (made, must be empty); the number of notes."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty")
    made = notes(chunks, seed)
    for path, text in made.items():
        target = folder / path
        target.parent.mkdir(exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return len(made)


def _note(rng: random.Random, words: Words, titles: list[str], number: int) -> str:
    day = f"20{rng.randrange(20, 27)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"
    tags = ", ".join(rng.sample(TAGS, 2))
    head = f"---\ntitle: {titles[number]}\ntype: {rng.choice(KINDS)}\ndate: {day}\ntags: [{tags}]\n---\n# {titles[number]}\n"
    sections = []
    for section in range(CHUNKS_PER_NOTE):
        sentences = []
        left = WORDS_PER_CHUNK
        while left > 0:
            length = rng.randrange(8, 25)
            left -= length
            sentences.append(" ".join(words.draw(length)).capitalize() + ".")
        for _ in range(2):
            # A square root pulls links towards the first notes: hubs.
            target = int(rng.random() ** 2 * len(titles))
            sentences[rng.randrange(len(sentences))] += f" See [[note{target}]]."
        title = "" if not section else f"## {' '.join(words.middling(2)).title()}\n\n"
        sections.append(title + " ".join(sentences) + "\n")
    return head + "\n" + "\n".join(sections)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--chunks", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    count = write(options.folder, options.chunks, options.seed)
    print(f"{count} notes in {options.folder}")


if __name__ == "__main__":
    main()
