"""Pages on request: write, delete, read, history. Compare-and-write, twins, replays of a bridge that reconnected."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from ...memory import redact
from ...memory.capture import pages
from ...memory.capture.events import Intake
from ...memory.notes import expiry, frontmatter
from ...memory.recall.tokens import fold
from ...protocol.envelope import Conflict, Invalid
from ...protocol.messages.capture import (
    DeletePage,
    PageDeleted,
    PageHistory,
    PageLog,
    PageText,
    PageVersion,
    PageWritten,
    ProjectRef,
    ReadPage,
    WritePage,
)  # fmt: skip
from .database import Database
from .pageindex import PageIndex
from .places import GLOBAL
from .recorder import now_ms
from .records import capture as records
from .records import captured
from .records import pages as page_records
from .wiki import files
from .wiki.outcomes import Expect, Refused
from .wiki.store import Wiki

MAX_BODY_CHARS = 1_000_000
RELATIONS = ("causes", "fixes", "contradicts", "supersedes", "superseded_by")
FOLDERS = {
    "decision": "decisions", "gotcha": "gotchas", "procedure": "procedures", "concept": "concepts", "rule": "rules",
    "note": "notes",
}  # fmt: skip
"""Where a page goes whose path names no folder, by its kind."""

pack = msgspec.msgpack.Encoder().encode


class WikiPages:
    """Handlers of the page messages; the project of each was resolved by the caller."""

    def __init__(self, db: Database, wiki: Wiki, index: PageIndex) -> None:
        self._db = db
        self._wiki = wiki
        self._index = index
        self.intake = Intake()
        self.redacted: dict[str, int] = {}

    async def write(self, message: WritePage, project: ProjectRef) -> PageWritten:
        """Write a page. Raises Invalid, Conflict; see ``WritePage``."""
        if (known := await self._replayed(message.replay_key)) is not None:
            return msgspec.msgpack.decode(known, type=PageWritten)
        if message.scope == "global":
            project = ProjectRef(name=GLOBAL, found_by="named")
        refuse_guess(project)
        if len(message.body) > MAX_BODY_CHARS:
            raise Invalid(f"the page is longer than {MAX_BODY_CHARS} characters: split it")
        if unknown := [name for name in message.relations if name not in RELATIONS]:
            raise Invalid(f"there is no relation '{unknown[0]}'; there are {', '.join(RELATIONS)}")
        if message.expires and not expiry.stated(message.expires):
            raise Invalid(
                f"expires: '{message.expires}' is no ISO date or time, such as 2026-12-31 or 2026-12-31T18:00Z"
            )
        relative = _path(message, project)
        path = f"{files.folder_of(project.name)}/{relative}"
        data, title, found = self._bytes(message, relative, project)
        if not message.expect_hash and await self._wiki.read(path) is None:
            twin = await self._db.read(
                page_records.twin_of, self._index.root, files.folder_of(project.name), path, title
            )
            if twin:
                inner = twin.partition("/")[2]
                return PageWritten(path=inner, file=str(self._wiki.root / twin), project=project, hash="", twin=inner)
        expect = Expect(hash=message.expect_hash, create_only=message.create_only)
        result = await self._wiki.write(path, data, f"write {path}", expect)
        if isinstance(result, Refused):
            if not (message.create_only and result.hash == files.hash_of(data)):
                raise Conflict(_refusal(relative, result))
            written = PageWritten(path=relative, file=str(self._wiki.root / path), project=project, hash=result.hash)
        else:
            await self._index.put(path, data, result.stat)
            written = PageWritten(
                path=relative, file=str(self._wiki.root / path), project=project, hash=result.hash,
                created=result.created, redacted=sum(found.values()),
            )  # fmt: skip
        for kind, number in found.items():
            self.redacted[kind] = self.redacted.get(kind, 0) + number
        await self._remember(message.replay_key, pack(written))
        return written

    async def delete(self, message: DeletePage, project: ProjectRef) -> PageDeleted:
        """Remove a page; removing one that is not there is no error. Raises Invalid, Conflict."""
        if (known := await self._replayed(message.replay_key)) is not None:
            return msgspec.msgpack.decode(known, type=PageDeleted)
        refuse_guess(project)
        relative, path = self._named(message.path, project)
        result = await self._wiki.remove(path, f"remove {path}", message.expect_hash)
        if isinstance(result, Refused):
            raise Conflict(_refusal(relative, result))
        if result:
            await self._index.drop(path)
        deleted = PageDeleted(path=relative, project=project, existed=result)
        await self._remember(message.replay_key, pack(deleted))
        return deleted

    async def expire(self, at_ms: int) -> int:
        """
        Remove the pages that are over at ``at_ms``, pinned ones too; how many went. Their last version stays in git. One
        that was changed since it was indexed is looked at again once the change is.
        """
        removed = 0
        for path, known, stated in await self._db.read(page_records.expired, self._index.root, at_ms):
            try:
                gone = await self._wiki.remove(path, f"remove {path}: it expired ({stated})", known)
            except files.BadPath:
                continue  # a name that only a person can have given: it is hidden, and theirs to remove
            if gone is True:
                await self._index.drop(path)
                removed += 1
        return removed

    async def read(self, message: ReadPage, project: ProjectRef) -> PageText:
        """A page as it stands on the disk. A path that recall gave for another project's page, or everybody's, works too."""
        relative, path = self._named(message.path, project)
        data = await self._wiki.read(path)
        if data is None and "/" in relative and (data := await self._wiki.read(relative)) is not None:
            path = relative
            name, _, relative = path.partition("/")
            project = ProjectRef(name=name, found_by="named")
        file = str(self._wiki.root / path)
        if data is None:
            return PageText(path=relative, file=file, project=project, not_found=True)
        text = data.decode("utf-8", "replace")
        return PageText(path=relative, file=file, project=project, text=text, hash=files.hash_of(data))

    async def log(self, message: PageLog, project: ProjectRef) -> PageHistory:
        """A page's versions in git, newest first."""
        relative, path = self._named(message.path, project)
        versions = await self._wiki.log(path, max(1, min(message.limit, 1000)))
        return PageHistory(
            path=relative,
            project=project,
            versions=tuple(
                PageVersion(
                    commit=each.commit, at=pages.instant_of(each.at_ms), author=each.author, subject=each.subject
                )
                for each in versions
            ),
        )

    def _named(self, given: str, project: ProjectRef) -> tuple[str, str]:
        relative = files.page_path(given)
        # A hit of recall names the page with its project's folder in front: both forms mean one page.
        folder = files.folder_of(project.name)
        relative = relative.removeprefix(f"{folder}/")
        return relative, f"{folder}/{relative}"

    def _bytes(self, message: WritePage, relative: str, project: ProjectRef) -> tuple[bytes, str, dict[str, int]]:
        """The page's file, its title, and what was redacted. Frontmatter of the body and of the message become one."""
        matter, body = frontmatter.split(message.body)
        fields = dict(matter.fields)
        heading = next((line[2:].strip() for line in body.splitlines() if line.startswith("# ")), "")
        title = message.title or str(fields.get("title") or "") or heading
        own = {
            "title": message.title or ("" if heading else title or relative.rsplit("/", 1)[-1].removesuffix(".md")),
            "kind": message.kind,
            "tags": list(message.tags),
            "pinned": message.pinned or None,
            "expires": message.expires,
            "supersedes": message.supersedes,
            **{name: list(targets) for name, targets in message.relations.items()},
        }
        fields |= {key: value for key, value in own.items() if value not in ("", None, [])}
        fields.setdefault("project", project.name)
        found: dict[str, int] = {}
        try:
            head = pages.frontmatter({str(key): self._clean(value, f"{key}: ", found) for key, value in fields.items()})
        except yaml.YAMLError as error:
            raise Invalid(f"the page's frontmatter cannot be written as YAML: {error}") from None
        text = f"{head}\n{self._clean(body.strip(), '', found)}\n"
        # Once more as a whole: a secret may stand across what was looked at apart.
        text = self._clean(text, "", found)
        return text.encode("utf-8", "replace"), title or relative.rsplit("/", 1)[-1].removesuffix(".md"), found

    def _clean(self, value: Any, before: str, found: dict[str, int]) -> Any:
        """``value`` with every text in it redacted; ``before`` is what a reader would see in front of it."""
        if isinstance(value, str):
            text, kinds = redact.redact(before + value, self.intake.extra, self.intake.allow)
            for kind, number in kinds.items():
                found[kind] = found.get(kind, 0) + number
            return text.removeprefix(before)
        if isinstance(value, list | tuple):
            return [self._clean(each, before, found) for each in value]
        if isinstance(value, dict):
            return {str(key): self._clean(each, f"{key}: ", found) for key, each in value.items()}
        return value

    async def _replayed(self, key: str) -> bytes | None:
        return await self._db.read(captured.replayed, key) if key else None

    async def _remember(self, key: str, reply: bytes) -> None:
        if key:
            await self._db.run(records.remember_reply, key, now_ms(), reply)


def refuse_guess(project: ProjectRef) -> None:
    """Raise Invalid for a project that was only guessed: a write there would land in somebody else's."""
    if project.guessed or not project.name:
        raise Invalid(
            'the project is not known here: name it, or put a .recalld.toml with `project = "…"` into its folder'
        )


def _path(message: WritePage, project: ProjectRef) -> str:
    relative = files.page_path(message.path).removeprefix(f"{files.folder_of(project.name)}/")
    if "/" not in relative:
        relative = f"{FOLDERS.get(fold(message.kind), 'notes')}/{relative}"
    return relative


def _refusal(path: str, refused: Refused) -> str:
    match refused.why:
        case "exists":
            return f"{path} exists already (hash {refused.hash}); write without create_only, or elsewhere"
        case "changed":
            return f"{path} has changed since you read it (hash now {refused.hash}): read it again"
        case "theirs":
            return (
                f"{path} was edited by a person: read it, keep their changes, and write with expect_hash {refused.hash}"
            )
        case "gone":
            return f"{path} is gone: write it without expect_hash to create it"
