"""XLM-RoBERTa's tokenizer as a tokenizer.json, from a SentencePiece vocabulary."""

from __future__ import annotations

import json
import re

from .sources import Pieces

CONTROL = "".join(map(chr, [*range(0x01, 0x09), 0x0B, *range(0x0E, 0x20), 0x7F, 0x8F, 0x9F]))
"""With SPACES, what SentencePiece's nmt_nfkc does beyond NFKC: these characters are removed."""
SPACES = "\t\n\x0c\r\u1680\u200b\u200c\u200d\u200e\u200f\u2028\u2029\u2581\ufeff\ufffd"
"""These are read as spaces."""


def tokenizer_json(pieces: Pieces) -> bytes:
    """
    tokenizer.json of XLM-RoBERTa's SentencePiece model (https://huggingface.co/docs/tokenizers, its components by name).
    """
    special = [(pieces.texts[number], number) for number in sorted((pieces.bos, pieces.pad, pieces.eos, pieces.unk))]
    rules = [
        {"type": "Replace", "pattern": {"Regex": f"[{re.escape(found)}]"}, "content": content}
        for found, content in ((CONTROL, ""), (SPACES, " "))
    ]
    bos, eos = pieces.texts[pieces.bos], pieces.texts[pieces.eos]
    split = [
        {"type": "WhitespaceSplit"},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
    ]
    around = [
        {"SpecialToken": {"id": bos, "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": eos, "type_id": 0}},
    ]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": text, **flags} for text, number in special],
        "normalizer": {"type": "Sequence", "normalizers": [*rules, {"type": "NFKC"}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": split},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": around,
            "pair": [*around, {"Sequence": {"id": "B", "type_id": 0}}, around[2]],
            "special_tokens": {
                text: {"id": text, "ids": [number], "tokens": [text]} for text, number in special if text in (bos, eos)
            },
        },
        "decoder": None,
        "model": {
            "type": "Unigram",
            "unk_id": pieces.unk,
            "vocab": [[text, score] for text, score in zip(pieces.texts, pieces.scores, strict=True)],
            "byte_fallback": False,
        },
    }
    return json.dumps(content, ensure_ascii=False).encode()
