"""Which notes may answer: filters and scopes, as pure functions of cards and vaults."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

from ...memory.recall.tokens import fold
from ...memory.recall.types import NoteCard
from ...protocol.envelope import Invalid
from ...protocol.messages.recall import Filters, Scope
from .streams.notes import VaultRow


class Place(NamedTuple):
    """The project that a question is asked from, and how it was found ('' and '' = none)."""

    project: str
    found_by: str


NOWHERE = Place("", "")


def allowed(
    cards: Mapping[int, NoteCard],
    vaults: Mapping[int, VaultRow],
    filters: Filters,
    *,
    scope: Scope = "all",
    cwd: str = "",
    place: Place = NOWHERE,
) -> set[int] | None:
    """
    Ids of the notes that may answer; None when all may.

    Names compare folded. Raises Invalid for a vault that is not there and for a date that is none.
    """
    if filters == Filters() and scope == "all":
        return None
    tests = [*_filter_tests(vaults, filters), *_scope_tests(vaults, scope, cwd, place)]
    return {note for note, card in cards.items() if all(test(card) for test in tests)}


def date_of(card: NoteCard) -> str:
    """The note's own ISO date, else the day on which its file was modified (UTC)."""
    return card.date or datetime.datetime.fromtimestamp(card.modified_ms / 1000, datetime.UTC).date().isoformat()


def instant_ms(text: str) -> int:
    """
    The instant that an ISO date or time names, in ms: a date means the end of that day, local time where none is given.

    Raises Invalid.
    """
    try:
        if len(text) == len("YYYY-MM-DD"):
            day = datetime.date.fromisoformat(text)
            moment = datetime.datetime.combine(day, datetime.time.max).astimezone()
        else:
            moment = datetime.datetime.fromisoformat(text)
            moment = moment.astimezone() if moment.tzinfo is None else moment
    except ValueError:
        raise Invalid(f"'{text}' is not an ISO date or time, such as 2026-03-31 or 2026-03-31T18:00") from None
    return int(moment.timestamp() * 1000)


def place_of(cwd: str, projects: Mapping[str, str]) -> Place:
    """The project with the longest root that holds ``cwd``. ``projects``: name -> root."""
    if not cwd:
        return NOWHERE
    here = PurePosixPath(cwd)
    holding = [(len(root), name) for name, root in projects.items() if root and here.is_relative_to(root)]
    if holding:
        return Place(max(holding)[1], "its folder")
    return NOWHERE


def _filter_tests(vaults: Mapping[int, VaultRow], filters: Filters) -> list:  # type: ignore[type-arg]
    tests = []
    if filters.folder:
        folder = fold(filters.folder).strip("/")
        tests.append(lambda card: fold(card.path).startswith(folder + "/") or not folder)
    if filters.tags:
        wanted = [fold(tag).lstrip("#") for tag in filters.tags]
        tests.append(lambda card: _has_tags(card, wanted))
    if filters.kinds:
        kinds = {fold(kind) for kind in filters.kinds}
        tests.append(lambda card: fold(card.kind) in kinds)
    if filters.since:
        since = _day(filters.since)
        tests.append(lambda card: date_of(card) >= since)
    if filters.until:
        until = _day(filters.until)
        tests.append(lambda card: date_of(card)[: len(until)] <= until)
    if filters.vaults:
        ids = _vault_ids(vaults, filters.vaults)
        tests.append(lambda card: card.vault_id in ids)
    return tests


def _scope_tests(vaults: Mapping[int, VaultRow], scope: Scope, cwd: str, place: Place) -> list:  # type: ignore[type-arg]
    match scope:
        case "all":
            return []
        case "project":
            return [lambda card: card.project == place.project and bool(place.project)]
        case "global":
            return [lambda card: not card.project]
        case "vault":
            here = {v.id for v in vaults.values() if cwd and PurePosixPath(cwd).is_relative_to(v.root)}
            ids = here or {v.id for v in vaults.values() if v.kind == "vault"}
            return [lambda card: card.vault_id in ids]


def _has_tags(card: NoteCard, wanted: list[str]) -> bool:
    """Each wanted tag, or one nested below it: ``work`` finds ``work/billing``."""
    own = [fold(tag) for tag in card.tags]
    return all(any(tag == want or tag.startswith(want + "/") for tag in own) for want in wanted)


def _vault_ids(vaults: Mapping[int, VaultRow], names: tuple[str, ...]) -> set[int]:
    ids: set[int] = set()
    for name in names:
        matching = {v.id for v in vaults.values() if fold(v.name) == fold(name) or v.root == name.rstrip("/")}
        if not matching:
            known = ", ".join(sorted(v.name for v in vaults.values())) or "none"
            raise Invalid(f"there is no vault '{name}'; known vaults: {known}")
        ids |= matching
    return ids


def _day(text: str) -> str:
    try:
        return datetime.date.fromisoformat(text[:10]).isoformat()
    except ValueError:
        raise Invalid(f"'{text}' is not an ISO date, such as 2026-03-31") from None
