"""The exception tree. Broken promises are exceptions; expected outcomes are values.

    CairnError
    ├── NotFound        (FileNotFoundError)  nothing at that place
    ├── Invalid         (ValueError)         a malformed locator, id, scope, note, message or filter
    │   ├── InvalidLocatorError              a key that could leave the root, or that no file can carry
    │   └── ProtocolError                    an empty or doubled backend name
    ├── Conflict                             written by someone else since it was read
    ├── Forbidden       (PermissionError)    outside what the caller may do
    │   └── NotOffered                       something this server was not set up for
    ├── Unavailable                          an engine or service cannot answer now; trying again is sensible
    │   └── StorageFailed   (OSError)        the disk refused: full, read-only, broken
    │       └── RootGone                     the folder of an open memory is gone, or another is in its place
    └── Misconfigured   (RuntimeError)       a setting is missing, unknown or at odds with another
        └── StorageSelectionError            the configured backend cannot be had
            └── CapabilityMismatchError      it can be had, but lacks what was required

Each carries its facts as attributes and a message that names the thing, the trouble and the next step.
"""

from __future__ import annotations

TYPE_CHECKING = False  # a hook imports this, and `typing` is a fifth of its time
if TYPE_CHECKING:
    from typing import Any


class CairnError(Exception):
    """Anything Cairn refuses or cannot do. `facts` holds what the message says, for programs."""

    def __init__(self, message: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts

    def __str__(self) -> str:
        return self.message


class NotFound(CairnError, FileNotFoundError):
    """Nothing at that place."""


class Invalid(CairnError, ValueError):
    """Input that breaks a rule. Nothing was written."""


class InvalidLocatorError(Invalid):
    """A key that could leave the backend's root, or that no file can carry: a caller's bug."""


class ProtocolError(Invalid):
    """A backend was registered under an empty or already taken name."""


class Conflict(CairnError):
    """Someone else wrote since the caller read. Read again and retry."""


class Forbidden(CairnError, PermissionError):
    """Outside what the caller may do. Nothing was written."""


class NotOffered(Forbidden):
    """Something this server was not set up for; the message names the setting."""


class Unavailable(CairnError):
    """An engine or service cannot answer now; trying again later is sensible."""


class StorageFailed(Unavailable, OSError):
    """The disk refused a write or a read (full, read-only, broken). The old state is intact."""


class RootGone(StorageFailed):
    """The folder of an open memory is gone, or another is in its place: nothing can be said of what it holds."""


class Misconfigured(CairnError, RuntimeError):
    """A setting is missing, unknown or at odds with another."""


class StorageSelectionError(Misconfigured):
    """The configured storage backend cannot be had; there is no silent fallback."""


class CapabilityMismatchError(StorageSelectionError):
    """The configured backend lacks a capability that was required."""
