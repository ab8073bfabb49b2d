"""
Retrieval quality through the real daemon: what a user gets, measured.

    python bench/retrieval.py --suite DIR [--json OUT] [--only-all]

DIR is a suite (``vault/``, ``questions.jsonl``) or a folder with several. Each is indexed by a daemon of its own in a
temporary folder and asked over its socket. Figures, per class, overall and per set of streams:

recall@k          share of the supporting notes among the first k, over answerable questions
mrr               1 / rank of the first supporting note among ten
answer_acc        answerable: not abstained, and the first hit's quote holds an accepted answer (any case, whole)
citation_verbatim answerable: one of the first five hits' quotes (15 to 240 characters) stands word for word in the note it
                  cites, cites a supporting note and holds an accepted answer
abstain_correct   unanswerable: share answered "the notes do not contain it"
false_abstain     answerable: the same, wrongly
latency_ms        at the caller, one question at a time, connection included; each question is new to the daemon
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recalld.memory.recall.metrics import mean, recall_at, reciprocal_rank
from recalld.protocol.messages.recall import STREAMS, Answer, Stream

sys.path.insert(0, str(Path(__file__).parent))
from suite import Asker, daemon, note_id, questions, suites

SETS: tuple[tuple[Stream, ...], ...] = (
    ("text",), ("vector",), ("text", "entity"), ("text", "vector"), ("text", "entity", "vector"), ("vector", "graph"),
)  # fmt: skip
CITATIONS = 5
QUOTE_CHARS = (15, 240)
_MARKUP = re.compile(r"\[\[([^\]|]*)\|([^\]]*)\]\]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only-all", action="store_true", help="skip the runs with fewer streams")
    options = parser.parse_args()
    found = suites(options.suite)
    if not found:
        sys.exit(f"{options.suite}: no questions.jsonl beside a vault/ in it")
    reports = [run(folder, only_all=options.only_all) for folder in found]
    if len(reports) > 1:
        reports.append(_together(options.suite.name, reports))
    for report in reports:
        show(report)
    if options.json:
        for report in reports:
            report.pop("rows", None)
        options.json.write_text(json.dumps(reports[0] if len(reports) == 1 else reports, indent=1), encoding="utf-8")


def run(folder: Path, *, only_all: bool) -> dict[str, Any]:
    """The report of one suite."""
    asked = questions(folder / "questions.jsonl")
    notes = {note_id(path.name): path.read_text(encoding="utf-8") for path in (folder / "vault").rglob("*.md")}
    with daemon(folder / "vault") as asker:
        asker.ask("warm up", k=1)
        rows = _ask_all(asker, asked, STREAMS, notes)
        streams = {"+".join(STREAMS): _overall(rows)}
        for chosen in () if only_all else SETS:
            streams["+".join(chosen)] = _overall(_ask_all(asker, asked, chosen, notes))
    return _report(folder.name, rows, streams)


def _report(name: str, rows: list[dict[str, Any]], streams: dict[str, Any]) -> dict[str, Any]:
    took = sorted(row["ms"] for row in rows)
    classes = sorted({row["cls"] for row in rows})
    return {
        "suite": name,
        "questions": len(rows),
        "overall": _overall(rows),
        "classes": {cls: _overall([row for row in rows if row["cls"] == cls]) for cls in classes},
        "streams": streams,
        "latency_ms": {"p50": round(took[len(took) // 2], 2), "p95": round(took[int(len(took) * 0.95)], 2)},
        "degraded": sorted({name for row in rows for name in row["degraded"]}),
        "rows": rows,
    }


def _together(name: str, reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All questions of all suites as one."""
    return _report(f"{name} (all)", [row for report in reports for row in report["rows"]], {})


def _ask_all(
    asker: Asker, asked: Sequence[dict[str, Any]], streams: tuple[Stream, ...], notes: dict[str, str]
) -> list[dict[str, Any]]:
    rows = []
    for question in asked:
        answer, took = asker.ask(question["question"], streams=streams)
        rows.append({"cls": question["cls"], "ms": took, "degraded": answer.degraded, **score(question, answer, notes)})
    return rows


def score(question: dict[str, Any], answer: Answer, notes: dict[str, str]) -> dict[str, Any]:
    """Figures of one answer; None where a figure does not apply to the question."""
    ranked = list(dict.fromkeys(note_id(hit.path) for hit in answer.hits))
    support, accepted = set(question["support"]), question["answers"]
    if not support:
        return {"abstain_correct": float(not answer.known)}
    cited = any(
        note_id(hit.path) in support
        and QUOTE_CHARS[0] <= len(plain(hit.quote)) <= QUOTE_CHARS[1]
        and plain(hit.quote) in plain(notes[note_id(hit.path)])
        and holds(hit.quote, accepted)
        for hit in answer.hits[:CITATIONS]
    )
    return {
        "recall@5": recall_at(ranked, support, 5),
        "recall@10": recall_at(ranked, support, 10),
        "mrr": reciprocal_rank(ranked, support, 10),
        "answer_acc": float(answer.known and bool(answer.hits) and holds(answer.hits[0].quote, accepted)),
        "citation_verbatim": float(cited),
        "false_abstain": float(not answer.known),
    }


def plain(text: str) -> str:
    return " ".join(_MARKUP.sub(r"\2", text).split())


def holds(text: str, accepted: Sequence[str]) -> bool:
    low = plain(text).lower()
    return any(re.search(rf"(?<![a-z0-9]){re.escape(str(answer).lower())}(?![a-z0-9])", low) for answer in accepted)


def _overall(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    names = ("recall@5", "recall@10", "mrr", "answer_acc", "citation_verbatim", "abstain_correct", "false_abstain")
    found: dict[str, Any] = {"n": len(rows)}
    for name in names:
        values = [row[name] for row in rows if name in row]
        if values:
            found[name] = round(mean(values), 4)
    return found


def show(report: dict[str, Any]) -> None:
    print(f"\n{report['suite']}: {report['questions']} questions, latency p50 {report['latency_ms']['p50']} ms, "
          f"p95 {report['latency_ms']['p95']} ms {report['degraded'] or ''}")  # fmt: skip
    columns = ("recall@5", "recall@10", "mrr", "answer_acc", "citation_verbatim", "abstain_correct", "false_abstain")
    print(f"{'':28}{'n':>5}" + "".join(f"{column:>18}" for column in columns))
    parts = {"overall": report["overall"], **report["classes"], **{f"[{k}]": v for k, v in report["streams"].items()}}
    for name, figures in parts.items():
        cells = "".join(f"{figures[c]:>18.4f}" if c in figures else f"{'':>18}" for c in columns)
        print(f"{name:28}{figures['n']:>5}{cells}")


if __name__ == "__main__":
    main()
