"""
Every message, one closed union per receiver. Decoders are built here, at import: two messages with one tag fail now.

Names are the operation (``UpsertNotes``), facts are past participles (``Indexed``). Tags are unique over all unions, so
one decoder reads every reply.
"""

from __future__ import annotations

import msgspec

from . import capture, common, control, embed, index, recall
from .capture import CaptureReply, CaptureRequest
from .control import ControlReply, ControlRequest, FromChild, ToChild
from .embed import EmbedReply, EmbedRequest
from .index import IndexReply, IndexRequest
from .recall import RecallReply, RecallRequest

WriterRequest = IndexRequest | CaptureRequest
QueryRequest = RecallRequest
AnyReply = IndexReply | CaptureReply | RecallReply | EmbedReply | ControlReply

decode_writer = msgspec.msgpack.Decoder(WriterRequest).decode
decode_query = msgspec.msgpack.Decoder(QueryRequest).decode
decode_embedder = msgspec.msgpack.Decoder(EmbedRequest).decode
decode_control = msgspec.msgpack.Decoder(ControlRequest).decode
decode_from_child = msgspec.msgpack.Decoder(FromChild).decode
decode_to_child = msgspec.msgpack.Decoder(ToChild).decode
decode_reply = msgspec.msgpack.Decoder(AnyReply).decode

__all__ = [
    "AnyReply",
    "CaptureReply",
    "CaptureRequest",
    "ControlReply",
    "ControlRequest",
    "EmbedReply",
    "EmbedRequest",
    "FromChild",
    "IndexReply",
    "IndexRequest",
    "QueryRequest",
    "RecallReply",
    "RecallRequest",
    "ToChild",
    "WriterRequest",
    "capture",
    "common",
    "control",
    "decode_control",
    "decode_embedder",
    "decode_from_child",
    "decode_query",
    "decode_reply",
    "decode_to_child",
    "decode_writer",
    "embed",
    "index",
    "recall",
]
