"""Switches off the telemetry of libraries by the variables they read at import.

A library that reads its switch while it loads is deaf to every call made later, so `hush` has to run before the
import: `runtime` does, the one place that loads onnxruntime, and the command line at its start, so that child
processes inherit it.
"""

from __future__ import annotations

import os
from typing import Any

# onnxruntime keeps a device id under the user's cache and sends events to its maker unless this is set.
SWITCHES = {"ORT_DISABLE_TELEMETRY": "1"}


def hush() -> None:
    """Set every switch, for this process and those it starts."""
    os.environ.update(SWITCHES)


def alone() -> None:
    """Let numpy's products run on the thread that asks for them, in a process that is ours; a wish of the user's stays.

    They are small: shared out, the library's other threads spin longer than they work, which doubled the processor time
    of a search and made none faster.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def runtime() -> Any:
    """onnxruntime, switched off before it is loaded."""
    hush()
    import numpy  # noqa: F401, ICN001 -- before who asks for its inside: see lance_import
    import onnxruntime

    return onnxruntime
