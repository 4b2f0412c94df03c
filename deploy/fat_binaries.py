"""CUDA's fat binaries inside a shared object: which GPU each piece of code is for, and how to blank what one GPU does not need.

A fat binary is a header and entries, one for each architecture. An entry is machine code (a cubin), or PTX, which the driver
compiles. A blanked entry keeps its header and its place, and its code is zeros, which take no room in a compressed archive. The
driver reads only the entry that it selects, so the file loads as before on the architecture that is kept.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

MACHINE_CODE, PTX = 2, 1
_MAGIC = struct.pack("<I", 0xBA55ED50)
_HEADER = struct.Struct("<IHHQ")  # magic, version, bytes of this header, bytes of the entries
_ENTRY = struct.Struct("<HHIQ")  # kind, flags, bytes of this header, bytes of the code
_ARCHITECTURE = 28  # where in the header of an entry
_SHORTEST = 32  # bytes of the header of an entry


class DamagedError(ValueError):
    """A fat binary whose entries do not fill it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Code for one architecture (90: compute capability 9.0), `length` bytes from `begin`. `binary`: which fat binary has it."""

    binary: int
    kind: int
    architecture: int
    begin: int
    length: int


def entries(data: bytes | bytearray) -> Iterator[Entry]:
    """Every entry of every fat binary, in order. Raises DamagedError."""
    position = number = 0
    while (position := data.find(_MAGIC, position)) >= 0:
        header = _HEADER.unpack_from(data, position) if position + _HEADER.size <= len(data) else None
        if header is None or header[1:3] != (1, _HEADER.size) or position + _HEADER.size + header[3] > len(data):
            position += len(_MAGIC)  # the same four bytes by chance
            continue
        at, end = position + _HEADER.size, position + _HEADER.size + header[3]
        while at < end:
            if at + _SHORTEST > end:
                raise DamagedError(f"the fat binary at byte {position} ends inside the header of an entry")
            kind, _, size, length = _ENTRY.unpack_from(data, at)
            if size < _SHORTEST or at + size + length > end:
                raise DamagedError(f"the fat binary at byte {position} has an entry that does not fit into it")
            (architecture,) = struct.unpack_from("<I", data, at + _ARCHITECTURE)
            yield Entry(number, kind, architecture, at + size, length)
            at += size + length
        position, number = end, number + 1


@dataclass(frozen=True, slots=True)
class Pruned:
    """The file with blanked entries. `lost`: the number of fat binaries that have no code left."""

    data: bytes
    kept_bytes: int
    blanked_bytes: int
    binaries: int
    lost: int


def prune(data: bytes, architecture: int) -> Pruned:
    """Blank everything but the machine code for one architecture. Raises DamagedError, or ValueError if nothing would be left."""
    found = list(entries(data))
    kept = [entry for entry in found if (entry.kind, entry.architecture) == (MACHINE_CODE, architecture)]
    if found and not kept:
        raise ValueError(f"it has no machine code for architecture {architecture}")
    changed, keep = bytearray(data), set(kept)
    for entry in found:
        if entry not in keep:
            changed[entry.begin : entry.begin + entry.length] = bytes(entry.length)
    binaries = {entry.binary for entry in found}
    return Pruned(
        bytes(changed),
        sum(entry.length for entry in kept),
        sum(entry.length for entry in found if entry not in keep),
        len(binaries),
        len(binaries - {entry.binary for entry in kept}),
    )
