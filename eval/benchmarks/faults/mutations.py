"""Random damage: of bytes, of JSON values, and of the parts of a safetensors file."""

import copy
import json
import random
import re
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

DTYPES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "I64": 8, "I32": 4, "U64": 8, "BOOL": 1, "C64": 8}
DTYPES |= {"F4": 1, "F8_E8M0": 1, "Q8": 1}
"""Names of the safetensors format and their bytes; numpy has no number for some, torch for others, "Q8" is none."""

NUMPY_DTYPES = {"F64": "f8", "F32": "f4", "F16": "f2", "I64": "i8", "I32": "i4", "U64": "u8", "BOOL": "?", "C64": "c8"}
Json = Any


# -------------------------------------------------------------------------------------------------- damaged bytes


def damaged(dice: random.Random, content: bytes, other: bytes) -> tuple[str, bytes]:
    """`content` with one to three random mutations, and their names; `other` is a sound file of the same kind."""
    names = []
    for _ in range(dice.choice([1, 1, 1, 2, 3])):
        mutate = dice.choice(BYTE_MUTATIONS)
        names.append(mutate.__name__)
        content = mutate(dice, content, other)
    return " + ".join(names), content


def _slice(dice: random.Random, content: bytes, longest: int = 64) -> tuple[int, int]:
    start = dice.randrange(len(content) + 1)
    return start, min(len(content), start + dice.randrange(1, longest))


def flip_bits(dice: random.Random, content: bytes, other: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(dice.choice([1, 1, 2, 8]) if content else 0):
        changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
    return bytes(changed)


def insert_bytes(dice: random.Random, content: bytes, other: bytes) -> bytes:
    start, _ = _slice(dice, content)
    some = dice.choice([dice.randbytes(dice.randrange(1, 20)), b" ", b"\n", b"\r", b"\0", b"{", b"]", b",", b"0"])
    return content[:start] + some + content[start:]


def delete_bytes(dice: random.Random, content: bytes, other: bytes) -> bytes:
    start, end = _slice(dice, content)
    return content[:start] + content[end:]


def truncate(dice: random.Random, content: bytes, other: bytes) -> bytes:
    return content[: dice.randrange(len(content) + 1)]


def append_bytes(dice: random.Random, content: bytes, other: bytes) -> bytes:
    return content + dice.choice([dice.randbytes(9), b"\n", b"}", b"\0" * 512, content, other])


def swap_slices(dice: random.Random, content: bytes, other: bytes) -> bytes:
    a, b, c = sorted(dice.randrange(len(content) + 1) for _ in range(3))
    return content[:a] + content[b:c] + content[a:b] + content[c:]


def repeat_slice(dice: random.Random, content: bytes, other: bytes) -> bytes:
    start, end = _slice(dice, content, 400)
    return content[:end] + content[start:end] + content[end:]


def zero_block(dice: random.Random, content: bytes, other: bytes) -> bytes:
    start, end = _slice(dice, content, 512)
    return content[:start] + bytes(end - start) + content[end:]


def empty(dice: random.Random, content: bytes, other: bytes) -> bytes:
    return b""


def replace_file(dice: random.Random, content: bytes, other: bytes) -> bytes:
    return other


def replace_number(dice: random.Random, content: bytes, other: bytes) -> bytes:
    return _replace_match(dice, rb"-?\d+(\.\d+)?", content, dice.choice(STRANGE_TOKENS))


def replace_text(dice: random.Random, content: bytes, other: bytes) -> bytes:
    return _replace_match(dice, rb'"[^"\n]*"', content, dice.choice([*STRANGE_TOKENS, b'""', b'"\\ud800"', b'"\xff"']))


def repeat_key(dice: random.Random, content: bytes, other: bytes) -> bytes:
    members = list(re.finditer(rb'"\w+": *[^,{}\[\]\n]+', content))
    if not members:
        return content
    member = dice.choice(members)
    twin = dice.choice([member.group(), member.group().split(b":")[0] + b": " + dice.choice(STRANGE_TOKENS)])
    return content[: member.start()] + twin + b", " + content[member.start() :]


def _replace_match(dice: random.Random, pattern: bytes, content: bytes, token: bytes) -> bytes:
    found = list(re.finditer(pattern, content))
    if not found:
        return content
    match = dice.choice(found)
    return content[: match.start()] + token + content[match.end() :]


STRANGE_TOKENS = [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-0", b"-0.0", b"null", b"true", b"[]", b"{}", b"'a'"]
STRANGE_TOKENS += [b"9" * 400, b"9" * 5000, b"[" * 100_000, b'{"a":' * 100_000, b"[" * 900 + b"]" * 900]
BYTE_MUTATIONS = [
    *(flip_bits, insert_bytes, delete_bytes, truncate, append_bytes, swap_slices, repeat_slice, zero_block, empty),
    *(replace_file, replace_number, replace_text, repeat_key),
]


# ---------------------------------------------------------------------------------------------- damaged JSON values


def strange(dice: random.Random) -> Json:
    """A JSON value that nobody expects."""
    number = dice.choice([0, 1, 2, 5, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, 10**30, 10**400, 10**6])
    decimal = dice.choice([0.0, -0.0, 0.5, 1.0, 1.5, 5e-324, 1e308, 0.2, 0.999])
    text = dice.choice(["", "1", "nan", "none", "thompson", "\0", "\ud800", "é" * 3, "x" * 10_000, "__metadata__"])
    nested: Json = []
    for _ in range(dice.choice([1, 3, 300])):
        nested = [nested]
    table = dice.choice([{}, {"": None}, {"step": 1}, {"alpha": [1.0]}])
    return dice.choice([None, True, False, number, -number, decimal, -decimal, text, [], [1, "a"], nested, table])


def altered(dice: random.Random, document: Json) -> Json:
    """A copy of the JSON value, one part of it altered in a way that knows its type."""
    document = copy.deepcopy(document)
    places = list(_places(document))
    holder, key = dice.choice(places)
    part = holder[key]
    choice = dice.randrange(6)
    if choice == 0 and isinstance(holder, dict):
        del holder[key]
    elif choice == 1 and isinstance(holder, dict):
        holder[dice.choice(["new", "alpha", "step", "", key + " ", key.upper()])] = strange(dice)
    elif choice in (2, 3) and isinstance(part, int | float) and not isinstance(part, bool):
        near = np.nextafter(part, 2.0).item()
        holder[key] = dice.choice([part + 1, part - 1, -part, part * 2, float(part), str(part), bool(part), near])
    elif choice == 4:
        holder[key] = dice.choice([[part], {"a": part}, [part, part], str(part)])
    else:
        holder[key] = strange(dice)
    return document


def _places(value: Json) -> Iterator[tuple[Any, Any]]:
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list) and value[key]:
            yield from _places(value[key])


def canonical(value: Any) -> str:
    """Text that is equal for equal values only: of the same types, to the last bit."""
    return json.dumps(value, sort_keys=True, default=_array)


def _array(value: Any) -> list[Any]:
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{type(value).__name__} in a state")
    return [value.dtype.str, list(value.shape), value.tobytes().hex()]


# ---------------------------------------------------------------------------------------------- safetensors by hand


def unpacked(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Header and data of a sound safetensors file."""
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def packed(header: Json, data: bytes) -> bytes:
    """A safetensors file with any header at all."""
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def altered_tensors(dice: random.Random, content: bytes) -> tuple[str, bytes]:
    """A safetensors file that differs in a number, a name, a type, a shape, the metadata or its layout."""
    header, data = unpacked(content)
    names = [name for name in header if name != "__metadata__"]
    name = dice.choice(names) if names else ""
    kind = dice.choice(TENSOR_ALTERATIONS)
    if kind == "metadata":
        header = {**header, "__metadata__": altered(dice, {"m": header["__metadata__"]}).get("m")}
    elif kind == "header":
        header = altered(dice, header)
    elif kind == "bytes of the header":
        text = damaged(dice, json.dumps(header).encode(), b"{}")[1]
        length = dice.choice([len(text), len(text), len(text) + 1, 0, 2**63, 2**64 - 1, 100_000_001])
        return kind, struct.pack("<Q", length) + text + data
    elif kind == "data":
        data = damaged(dice, data, b"")[1]
    elif not names:
        header["alpha"] = {"dtype": "F64", "shape": [0], "data_offsets": [0, 0]}
    elif kind == "dtype":
        entry = header[name]
        entry["dtype"] = dice.choice(list(DTYPES))
        size = entry["data_offsets"][1] - entry["data_offsets"][0]
        entry["shape"] = [size // DTYPES[entry["dtype"]]]
    elif kind == "shape":
        size = int(np.prod(header[name]["shape"]))
        shapes = [[], [size, 1], [1, size], [1] * 70 + [size], [size, 0, 2**63 - 1], [size + 1]]
        header[name]["shape"] = dice.choice(shapes)
    elif kind == "no rows":
        for each in names:
            header[each] |= {"shape": dice.choice([[0], [0], [0, 2**40], [2**62, 0]]), "data_offsets": [0, 0]}
        data = b""
    elif kind == "name":
        new = dice.choice(["alpha", "sample_key", "", "9/x", "-1/x", "0/prompt_ids", "01/x", "x", "0", "/"])
        header = {new if each == name else each: entry for each, entry in header.items()}
    elif kind == "order":
        start, end = header[name]["data_offsets"]
        cells = [data[i : i + 8] for i in range(start, end, 8)]
        dice.shuffle(cells)
        data = data[:start] + b"".join(cells) + data[end:]
    elif kind == "number":
        whole = struct.pack("<q", dice.choice([-1, 0, 1, 2, 3, 7, 2**31, 2**53, 2**62, 2**63 - 1, -(2**63)]))
        real = struct.pack("<d", dice.choice([np.nan, np.inf, -1.0, -0.0, 5e-324, 0.5, 3.0, 1e16, 1e300, 1.7e308]))
        both = [each for each in ("alpha", "beta") if each in header] or names
        row = dice.randrange(20)
        for each in dice.choice([[name], [name], both]):
            start, end = header[each]["data_offsets"]
            if end - start >= 8:
                at = start + row * 8 % ((end - start) // 8 * 8)
                likely = real if header[each]["dtype"] == "F64" else whole
                data = data[:at] + dice.choice([*[likely] * 9, whole, real]) + data[at + 8 :]
    return kind, packed(header, data)


TENSOR_ALTERATIONS = ["metadata", "header", "bytes of the header", "data", "dtype", "shape", "no rows", "name"]
TENSOR_ALTERATIONS += ["order", *["number"] * 6]


def arrays_of(content: bytes) -> dict[str, tuple[str, list[int], bytes]]:
    """Of each tensor its type, shape and bytes."""
    header, data = unpacked(content)
    header.pop("__metadata__", None)
    return {
        name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])]) for name, entry in header.items()
    }
