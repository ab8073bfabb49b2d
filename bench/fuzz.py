"""
Coverage-guided fuzzing of everything that reads what others wrote. Opt-in: needs `pip install atheris` (Linux).

    python bench/fuzz.py TARGET [--seconds 60] [--corpus FOLDER]

A target ends with a traceback for an exception that it must not raise, and with libFuzzer's report for an input that takes
more than SLOW_S seconds. The input is left as ``crash-…`` or ``timeout-…`` in the working directory.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path

try:
    import atheris
except ImportError:
    sys.exit("this needs atheris: pip install atheris")

with atheris.instrument_imports(include=["recalld"]):
    import msgspec
    from recalld.memory import redact
    from recalld.memory.capture import events, policy
    from recalld.memory.notes import frontmatter, links
    from recalld.memory.notes.ignore import Rules
    from recalld.memory.notes.parse import parse
    from recalld.memory.notes.structure import scan
    from recalld.memory.recall import tokens
    from recalld.protocol import framing, messages
    from recalld.protocol.envelope import BadFrame, Call, Hello, encode
    from recalld.protocol.messages.control import GetStatus

SLOW_S = 5


def frames(data: bytes) -> None:
    """A frame is an envelope or a BadFrame; a body is a message or a MsgspecError."""
    try:
        framing.body_length(data[:4])
        framing.unpack(data[4:])
    except BadFrame:
        pass
    for decode in (messages.decode_writer, messages.decode_query, messages.decode_embedder, messages.decode_control):
        try:
            decode(data)
        except msgspec.MsgspecError:
            pass


def notes(data: bytes) -> None:
    """Any bytes are a note, and every line that is not blank is in a chunk."""
    note, chunks = parse("folder/note.md", data)
    assert len(note.title) <= 400
    assert all(chunk.line_from <= chunk.line_to for chunk in chunks)
    msgspec.msgpack.encode(note)


def matter(data: bytes) -> None:
    """Frontmatter is read or left in the body."""
    found, body = frontmatter.split("---\n" + data.decode("utf-8", "replace"))
    frontmatter.texts(list(found.fields.values()))
    assert isinstance(body, str)


def linking(data: bytes) -> None:
    """Links of any body."""
    structure = scan(data.decode("utf-8", "replace"))
    list(links.of_body(structure.masked, structure.inlines, 1))


def secrets(data: bytes) -> None:
    """Redaction is idempotent: what it leaves holds nothing that it would take."""
    once, _ = redact.redact(data.decode("utf-8", "replace"))
    again, found = redact.redact(once)
    assert again == once, (once, again, found)


def capture(data: bytes) -> None:
    """A hook client's line is an event, or a reason why there is none."""
    try:
        wire = msgspec.json.decode(data, type=events.Wire)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return
    events.accept(wire, 1)


def terms(data: bytes) -> None:
    """Text to index terms and query terms."""
    text = data.decode("utf-8", "replace")
    tokens.index_text(text)
    tokens.query_terms(text)
    assert all(0 <= start < end <= len(text) for start, end in tokens.sentences(text))


def markers(data: bytes) -> None:
    """A repository's .recalld.toml is a policy, whatever it says."""
    try:
        raw = tomllib.loads(data.decode("utf-8", "replace"))
    except (tomllib.TOMLDecodeError, RecursionError):
        return
    policy.read(raw, "/repo", "/home/u")


def ignoring(data: bytes) -> None:
    """Ignore patterns of any kind decide about any path."""
    patterns, _, path = data.decode("utf-8", "replace").partition("\0")
    Rules(patterns.splitlines()).ignores(path or "a/b.md", folder=False)


TARGETS: dict[str, Callable[[bytes], None]] = {
    function.__name__: function
    for function in (frames, notes, matter, linking, secrets, capture, terms, markers, ignoring)
}

NOTE = b"""---
title: "A note"
tags: [a, b]
supersedes: "[[old]]"
relations: {fixes: [x]}
---
# Head

Ana Lima wrote [[other#part|words]] on 2024-01-02. #tag `code` ![[image]] [text](note.md "t")

- item
  > quote

```py
x = 1
```
| a | b |
|---|---|
"""
LINE = (
    b'{"recalld":1,"host":"claude","event":"PostToolUse","sent_ms":1,"payload":{"session_id":"s","cwd":"/r","tool_name":"Bash",'
    b'"tool_input":{"command":"export TOKEN=abc","file_path":"/r/a"},"tool_response":{"stdout":"x","exit_code":1}}}'
)
SEEDS: dict[str, tuple[bytes, ...]] = {
    "frames": (framing.pack(Hello(1, "cli", 1)), framing.pack(Call(1, 100, "t", msgspec.Raw(encode(GetStatus()))))),
    "notes": (NOTE,), "matter": (NOTE.partition(b"---\n")[2],), "linking": (NOTE,), "terms": (NOTE,), "capture": (LINE,),
    "secrets": (
        b"password=hunter22 AKIAABCDEFGHIJKLMNOP eyJhbGciOiJI.eyJzdWIiOiIx.sig ghp_0123456789abcdefghij0123456789abcdef",
        b"-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----", b"curl -u a:b https://u:p@h/ <private>x</private>",
    ),
    "markers": (b'project = "x"\n[capture]\nenabled = false\nignore_paths = ["secrets/**"]\n',),
    "ignoring": (b"*.tmp\n!keep.tmp\n/build/\n**/x/*.md\n[a-z]?.md\0build/x.md",),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=list(TARGETS))
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--corpus", default="", metavar="FOLDER", help="inputs to begin with; new ones are added")
    arguments = parser.parse_args()
    options = [f"-max_total_time={arguments.seconds}", f"-timeout={SLOW_S}", "-max_len=8192", "-rss_limit_mb=2048"]
    corpus = arguments.corpus or tempfile.mkdtemp(prefix="fuzz-")
    for number, seed in enumerate(SEEDS.get(arguments.target, ())):
        Path(corpus, f"seed-{number}").write_bytes(seed)
    atheris.Setup([sys.argv[0], *options, corpus], TARGETS[arguments.target])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
