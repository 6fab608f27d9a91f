"""digest - XXH3's 128 bits, equal to core/digest.h's. It needs the standard library alone, and libxxhash, which the
engine needs as well.
"""

import ctypes

from speclab.command import Fault


class _Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def content_hash(data: bytes) -> str:
    """Returns the hash of bytes, as 32 hexadecimal digits. Raises Fault."""
    try:
        function = ctypes.CDLL("libxxhash.so.0").XXH3_128bits
    except (OSError, AttributeError):
        raise Fault("expected the library libxxhash.so.0 of version 0.8 (apt-get install libxxhash0), found none") from None
    function.restype, function.argtypes = _Hash128, (ctypes.c_char_p, ctypes.c_size_t)
    h = function(data, len(data))
    return f"{h.high:016x}{h.low:016x}"
