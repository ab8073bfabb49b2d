"""Every number of ranking, by name, with where it comes from. docs/ranking.md tells what each one was measured to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

Weight = Annotated[float, Meta(ge=0.0, le=10.0)]


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """Two logistic regressions over ``confidence.Features``: weights by feature name, and 'bias'."""

    named: dict[str, float]
    """For questions that name something that a note is about."""
    unnamed: dict[str, float]
    threshold: float = 0.5
    provenance: str = ""


class Params(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults of ``config.recall.ranking``. "prior": from published or earlier work; "fitted": bench/fit_ranking.py."""

    # Vectors: cosine of a note = weighted mean of these three.
    dense_note: Weight = 0.6
    """Mean of the note's passages. prior: note and best sentence in equal parts beat either alone."""
    dense_chunk: Weight = 0.15
    """The best passage."""
    dense_sentence: Weight = 0.5
    """The best sentence."""
    dense_common: Weight = 0.6
    """Share of what all passages have in common (their mean vector) that is taken off the question before it is compared
    with sentences: what they all say tells none from the others. fitted: plateau 0.5-1.0."""
    dense_floor: Weight = 0.05
    """Cosine that means nothing: unrelated English sentences score about this with MiniLM."""
    dense_weight: Weight = 1.0

    # Full text.
    text_weight: Weight = 0.5
    text_b: Weight = 0.4
    """Length normalisation of whole notes."""
    text_chunk_share: Weight = 0.3
    """Share of the best passage in a note's text score; the rest is the whole note as one document."""
    text_framing: Weight = 0.3
    """Weight of words that frame a question ("which *kind* of", "*mentioned*") against those that name its object."""
    text_gate: Weight = 0.35
    """IDF coverage of the best note below which words have no full vote. prior: paraphrases stay under 0.21."""
    text_gate_width: Weight = 0.15
    """Coverage over which the vote grows from nothing to full, ending at ``text_gate`` + this."""

    # What kind of question it is.
    exact_text: Weight = 2.0
    """Identifiers, paths, quoted strings: words count this much more …"""
    exact_vector: Weight = 0.7
    """… and similarity this much less."""
    name_entity: Weight = 3.0
    """A bare name: who is called so."""
    name_vector: Weight = 0.7

    # Names.
    entity_weight: Weight = 0.3
    entity_limit: Weight = 10.0
    """Tens of notes: a name on more notes than 10 x this tells nothing."""

    kind_weight: Weight = 0.2
    """Bonus of a note whose kind the question mentions ("which *project* …")."""

    # Links.
    graph_weight: Weight = 1.0
    graph_seeds: Weight = 3.0
    """Notes from which votes spread. prior: 1 to 5 makes no difference."""
    graph_decay: Weight = 0.95
    """Share of a seed's score that a neighbour can get. prior: plateau 0.9-1.0."""
    graph_own: Weight = 0.3
    """Part of the vote that depends on the neighbour's own similarity. prior: plateau 0.2-0.4."""
    graph_in: Weight = 0.3
    """In-links, relative to out-links. prior: hub notes make them harmful as seeds' votes."""
    graph_markdown: Weight = 1.0
    graph_embed: Weight = 1.0
    graph_typed: Weight = 1.0
    """causes, fixes, contradicts."""
    graph_degree: Weight = 0.0
    """Exponent on the number of out-links of the seed, beyond ``graph_degree_free``."""
    graph_degree_free: Weight = 8.0
    graph_second: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.0
    """Share of its vote that a neighbour passes on along its own links; 0 = votes end after one link."""
    graph_kind: Weight = 0.6
    """Bonus for a neighbour whose kind the question mentions ("which *tool* …")."""

    # Time.
    superseded_factor: Weight = 0.65
    """A replaced note, unless the question asks for history. prior: ai-memory's belief factor."""
    history_factor: Weight = 1.15
    """A replaced note when the question asks for history ("the original …", "what was it before")."""
    current_margin: Weight = 0.02
    """"Current X": the replacement is ranked at least this share above what it replaces."""
    period_weight: Weight = 0.3
    """Bonus of a note dated inside a period that the question names."""
    recency_weight: Weight = 0.5
    """"Recently": factor 1 + this x 2^(-age / recency_days)."""
    recency_days: Annotated[float, Meta(gt=0, le=10_000)] = 30.0

    # Standing.
    authority_strength: Weight = 0.1
    """Exponent on the authority factor (0.55-1.50); 1 = as ai-memory, 0 = off."""

    # The sentence that answers.
    sentence_words: Weight = 0.5
    sentence_cosine: Weight = 1.0
    sentence_names: Weight = 0.2
    """Weight of the words of names against the others: the note is about the name, the sentence about what is asked."""
    sentence_names_linked: Weight = 0.0
    """The same in a note that a link brought: it is not about that name."""
    sentence_linked_cosine: Weight = 0.25
    """There, similarity to the whole question counts this much."""
    sentence_kind: Weight = 0.1
    """A link to a note of the kind that is asked for."""
    sentence_type: Weight = 0.3
    """A date where a date is asked for, a number, a name …"""

    # The cross-encoder of config.embedder.reranker, if there is one.
    rerank: Annotated[float, Meta(ge=0.0, le=2.0)] = 1.0
    """0 = never, 1 = if it won on one's own questions (`recalld eval rerank`), 2 = without having been measured."""
    rerank_weight: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.5
    """Its part in the relevance of what it read; 1 = it decides alone. prior: halves, until one's own questions say other."""
    rerank_depth: Annotated[float, Meta(ge=2, le=100)] = 20.0
    """Hits that it reads. prior: about 10 ms each on one core for a model of 22 million parameters."""

    near_duplicate: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.9
    """Jaccard similarity of word shingles from which two notes are one hit."""
    pool: Annotated[float, Meta(ge=10, le=1000)] = 60.0
    """Notes taken from each stream."""
    know_threshold: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.5
    """Confidence below which an answer says that the notes do not contain it; config.recall.know_threshold."""
    model: Model | None = None
    """Of the confidence; None = the packaged one. A person's own is written by `recalld eval calibrate`."""


def params_from(overrides: Mapping[str, float]) -> Params:
    """Defaults with ``overrides``. Raises msgspec.ValidationError naming an unknown parameter or one out of range."""
    return msgspec.convert(dict(overrides), Params)


def changed(params: Params, overrides: Mapping[str, float]) -> Params:
    """``params`` with ``overrides``. Raises msgspec.ValidationError like ``params_from``."""
    if not overrides:
        return params
    checked = params_from(overrides)
    return msgspec.structs.replace(params, **{name: getattr(checked, name) for name in overrides})
