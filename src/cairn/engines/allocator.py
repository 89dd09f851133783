"""Tunes the C allocator (glibc) of a server so that freed memory goes back to the system.

glibc raises the size from which it maps memory apart when the first large text is freed. From then on whole
notes are cut from the heaps of as many threads as there are, and what is freed there stays. Two settings keep
the size as it is and the heaps few; `trim` gives back what lies free at the top of them.
"""

from __future__ import annotations

import ctypes
import sys

_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_MMAP_BYTES = 128 * 1024
_ARENAS = 2


def settle() -> bool:
    """Keep large texts out of the heaps and the heaps few; False where the C library knows no such setting."""
    library = _glibc()
    if library is None:
        return False
    return bool(library.mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES) and library.mallopt(_M_ARENA_MAX, _ARENAS))


def trim() -> bool:
    """Give memory that is free back to the system; whether anything could be given back."""
    library = _glibc()
    return bool(library is not None and library.malloc_trim(0))


def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None
