"""Results between our own processes: msgpack frames with a length before them. Arrays are in the form that
`reduction` writes to files as well."""

from __future__ import annotations

import struct
from typing import Any, BinaryIO

import msgspec
import numpy as np

from wirecost.breakdown import Parts
from wirecost.trace.rank import Options, RankTrace

_LENGTH = struct.Struct("<Q")


class Job(msgspec.Struct, tag=True):
    path: bytes  # as the file system has it: it need not be text
    options: Options


class Read(msgspec.Struct, tag=True):
    """Bytes of the file that were read since the last message."""

    count: int


class Done(msgspec.Struct, tag=True):
    traces: list[RankTrace]


class Failed(msgspec.Struct, tag=True):
    """The file is no trace; the message is for the user. `foreign`: it is another tool's."""

    message: str
    foreign: bool = False


def encode_arrays(value: Any) -> Any:
    """Converts what MessagePack doesn't have: arrays and parts."""
    if isinstance(value, np.ndarray):
        return [list(value.shape), np.ascontiguousarray(value, dtype=np.int64).tobytes()]
    if isinstance(value, Parts):
        return value.model_dump()
    raise NotImplementedError(type(value))


def decode_arrays(kind: Any, value: Any) -> Any:
    """Returns the array or the parts that `encode_arrays` converted. Raises ValueError for others."""
    if kind is Parts:
        return Parts(**value)
    shape, data = value
    return np.frombuffer(bytearray(data), dtype=np.int64).reshape(shape)


_encoder = msgspec.msgpack.Encoder(enc_hook=encode_arrays)
_decoder = msgspec.msgpack.Decoder(Job | Read | Done | Failed, dec_hook=decode_arrays)


def send(stream: BinaryIO, message: Job | Read | Done | Failed) -> None:
    data = _encoder.encode(message)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: BinaryIO) -> Job | Read | Done | Failed | None:
    """Returns the next message; None at the end of the stream."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    data = stream.read(length)
    return _decoder.decode(data) if len(data) == length else None
