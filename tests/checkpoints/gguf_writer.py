"""A GGUF file byte by byte, as far as `inspect` needs it: numbers, texts, float32 tensors."""

import struct

KINDS = {bool: (7, "<?"), int: (4, "<I"), float: (6, "<f")}


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value_of(value):
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    kind, letters = KINDS[type(value)]
    return struct.pack("<I", kind) + struct.pack(letters, value)


def gguf_bytes(arch, keys, tensors=()):
    """Key-values under the architecture's name, and tensors as (name, sizes with the fastest first, values)."""
    pairs = {"general.architecture": arch, **{f"{arch}.{name}": value for name, value in keys.items()}}
    out = (
        b"GGUF"
        + struct.pack("<IQQ", 3, len(tensors), len(pairs))
        + b"".join(text(name) + value_of(value) for name, value in pairs.items())
    )
    data = b""
    for name, sizes, values in tensors:
        data += b"\0" * (-len(data) % 32)
        out += (
            text(name)
            + struct.pack("<I", len(sizes))
            + struct.pack(f"<{len(sizes)}Q", *sizes)
            + struct.pack("<IQ", 0, len(data))
        )
        data += struct.pack(f"<{len(values)}f", *values)
    return out + b"\0" * (-len(out) % 32) + data
