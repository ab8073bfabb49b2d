"""Messages of the embedder: it answers questions at once (the query lane); bulk work it fetches from the writer itself."""

from __future__ import annotations

from .common import Message, Ok


class Embed(Message, frozen=True, tag="embed"):
    """Embed texts in the query lane, ahead of all bulk work -> Embeddings. At most 32 texts."""

    texts: tuple[str, ...]


class Embeddings(Message, frozen=True, tag="embeddings"):
    """``vectors``: len(texts) x dim little-endian float32, L2-normalised, row-major."""

    model_id: int
    sha256: str
    dim: int
    vectors: bytes


class Rerank(Message, frozen=True, tag="rerank"):
    """Score passages against a query with the local cross-encoder, when one is configured -> Scores."""

    query: str
    passages: tuple[str, ...]
    sha256: str = ""
    """Only with the model of this digest; '' = with whichever is loaded."""


class Scores(Message, frozen=True, tag="scores"):
    """One relevance score per passage; empty when no reranker is loaded, or another one than was asked for."""

    values: tuple[float, ...]
    sha256: str = ""
    """Of the reranker that is loaded; '' = none is."""


class LoadModel(Message, frozen=True, tag="load_model"):
    """Change to another installed model; current answers go on with the old one until it is loaded -> Ok."""

    name: str


class DescribeModel(Message, frozen=True, tag="describe_model"):
    """-> ModelInfo"""


class ModelInfo(Message, frozen=True, tag="model_info"):
    name: str
    sha256: str
    dim: int
    max_tokens: int
    loaded: bool
    problem: str = ""
    reranker: str = ""
    """Folder of the cross-encoder that is loaded; '' = none."""
    reranker_sha256: str = ""
    reranker_problem: str = ""


EmbedRequest = Embed | Rerank | LoadModel | DescribeModel
EmbedReply = Embeddings | Scores | ModelInfo | Ok
