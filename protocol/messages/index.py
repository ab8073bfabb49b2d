"""Messages of the index: what the watcher, the embedder and the command line ask of the writer."""

from __future__ import annotations

from typing import Literal

import msgspec

from .common import Chunk, FileStat, Message, Ok, ParsedNote


class Vault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A folder that is indexed. ``root`` is its absolute real path; ``kind`` wiki = ours to write."""

    root: str
    name: str
    kind: Literal["vault", "wiki"] = "vault"


class NoteImage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file as it was read: everything that is needed to replace its row."""

    path: str
    """Relative to the vault's root, POSIX separators, NFC left as the disk has it (surrogateescape removed by the sender)."""
    stat: FileStat
    hash: bytes
    """blake2b-16 of the file's bytes."""
    note: ParsedNote
    chunks: tuple[Chunk, ...]


class OpenVault(Message, frozen=True, tag="open_vault"):
    """Register a vault (idempotent) and learn what the index holds of it -> VaultState."""

    vault: Vault


class KnownFile(msgspec.Struct, frozen=True, array_like=True):
    path: str
    stat: FileStat
    hash: bytes


class VaultState(Message, frozen=True, tag="vault_state"):
    vault_id: int
    files: tuple[KnownFile, ...]


class CloseVault(Message, frozen=True, tag="close_vault"):
    """The vault was removed from the configuration: forget its notes -> Ok."""

    root: str


class UpsertNotes(Message, frozen=True, tag="upsert_notes"):
    """
    Replace what the index knows of these files, in one transaction -> Indexed.

    Idempotent by ``hash``. Vectors may be missing when it returns: see ``Indexed.pending``.
    """

    vault_id: int
    notes: tuple[NoteImage, ...]


class PackedNotes(Message, frozen=True, tag="upsert_notes"):
    """``UpsertNotes`` to one who sends it: each of ``notes`` is a NoteImage that was encoded as soon as it was made."""

    vault_id: int
    notes: tuple[msgspec.Raw, ...]


class MoveNotes(Message, frozen=True, tag="move_notes"):
    """Files that changed their path and nothing else: chunks and vectors are kept -> Indexed."""

    vault_id: int
    moves: tuple[tuple[str, str, FileStat], ...]
    """(old path, new path, stat after the move). The title follows when it came from the file name."""


class TouchNotes(Message, frozen=True, tag="touch_notes"):
    """Same content, new stat: stored so that the next sweep need not read them -> Ok."""

    vault_id: int
    files: tuple[tuple[str, FileStat], ...]


class DropNotes(Message, frozen=True, tag="drop_notes"):
    """Files that are gone -> Indexed."""

    vault_id: int
    paths: tuple[str, ...]


class Indexed(Message, frozen=True, tag="indexed"):
    """``revision`` counts changes of the index; a reader that has seen it has seen this change."""

    revision: int
    changed: int = 0
    pending: int = 0
    """Texts that wait for their vectors; of many, at least a thousand."""


class SweepDone(Message, frozen=True, tag="sweep_done"):
    """A full diff of a vault ended (cast or call) -> Ok. Feeds ``stale_for_ms`` and status."""

    vault_id: int
    at_ms: int
    files: int
    unreadable: tuple[tuple[str, str], ...] = ()
    """(path, why) of files or folders that could not be read; at most 200."""
    suspended: str = ""
    """Why deletions are held back ('root is gone', '212 of 230 files vanished: waiting for a second sweep'); '' = not."""


class AwaitIndex(Message, frozen=True, tag="await_index"):
    """Long poll: answers when the index is another one than ``birth``, else after ``wait_ms`` (<= 10 000) -> IndexBirth."""

    birth: int = 0
    wait_ms: int = 10_000


class IndexBirth(Message, frozen=True, tag="index_birth"):
    """Which database is open, by a number that no other one has; 0 when none can be opened."""

    birth: int
    vaults: tuple[str, ...] = ()
    """Roots of the watched folders (not the wiki) that it holds notes of."""


class UseModel(Message, frozen=True, tag="use_model"):
    """The embedder's model. Another SHA-256 than before queues every current chunk again -> ModelInUse."""

    name: str
    sha256: str
    dim: int
    instance: str = ""
    """Which embedder process says so: leases of another one have ended, those of the same one have not."""


class ModelInUse(Message, frozen=True, tag="model_in_use"):
    model_id: int
    pending: int


class ClaimChunks(Message, frozen=True, tag="claim_chunks"):
    """Long poll: answers at once when chunks wait, else when some appear or after ``wait_ms`` (<= 10 000) -> Claimed."""

    model_id: int
    limit: int = 64
    lease_ms: int = 60_000
    wait_ms: int = 10_000


class PendingChunk(msgspec.Struct, frozen=True, array_like=True):
    hash: bytes
    context: str
    text: str


class Claimed(Message, frozen=True, tag="claimed"):
    chunks: tuple[PendingChunk, ...]


class Vector(msgspec.Struct, frozen=True, array_like=True):
    """One embedding, L2-normalised, little-endian float16. ordinal 0 is the chunk, 1… its sentences."""

    ordinal: int
    char_from: int
    char_to: int
    """Slice of the chunk's text that a sentence covers; (0, len) for the chunk."""
    values: bytes


class EmbeddedChunk(msgspec.Struct, frozen=True, array_like=True):
    hash: bytes
    vectors: tuple[Vector, ...]


class StoreVectors(Message, frozen=True, tag="store_vectors"):
    """Vectors of claimed chunks; those whose hash is no longer in the index are ignored -> Indexed."""

    model_id: int
    chunks: tuple[EmbeddedChunk, ...]


class FailChunks(Message, frozen=True, tag="fail_chunks"):
    """The model failed on these; after three tries a chunk is set aside and shown in status -> Ok."""

    hashes: tuple[bytes, ...]
    error: str


class Settle(Message, frozen=True, tag="settle"):
    """Answered when everything received before it is committed -> Settled (tests, `recalld index`)."""


class Settled(Message, frozen=True, tag="settled"):
    revision: int
    pending_vectors: int
    failed_vectors: int = 0


class Maintain(Message, frozen=True, tag="maintain"):
    """`compact` (remove what nothing refers to, VACUUM), `check` (integrity) -> Maintained."""

    what: Literal["compact", "check", "checkpoint"]


class Maintained(Message, frozen=True, tag="maintained"):
    report: dict[str, str]


class Reindex(Message, frozen=True, tag="reindex"):
    """Build a new database beside this one from files and journal, swap when complete -> Ok (progress in status)."""


class Backup(Message, frozen=True, tag="backup"):
    """Write a consistent copy of wiki, journal, config (and index) as one .tar.gz file -> Maintained."""

    target: str
    with_index: bool = False


IndexRequest = (
    OpenVault | CloseVault | UpsertNotes | MoveNotes | TouchNotes | DropNotes | SweepDone | UseModel | ClaimChunks
    | StoreVectors | FailChunks | AwaitIndex | Settle | Maintain | Reindex | Backup
)  # fmt: skip
IndexReply = VaultState | Indexed | ModelInUse | Claimed | IndexBirth | Settled | Maintained | Ok
