"""The one HTTP client for model endpoints: a POST of JSON within a time budget, and nothing more.

It goes to the host the settings name and nowhere else. A redirect is not followed: the words and the key would go
to whoever it names. Proxies, passwords and cookies of the environment are not used: a local model must be reached
directly, and nothing should leave the machine by a door nobody set; a proxy counts where the settings name one.

The library is imported with the first request, so a process that never asks a model never pays for it.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from cairn.errors import Misconfigured

if TYPE_CHECKING:
    import ssl

_CONNECT_SECONDS = 10.0


class NoAnswer(Exception):
    """The endpoint could not be reached, or what came is no HTTP answer of a bearable size."""


class Reply(NamedTuple):
    """What an endpoint answered. `elsewhere` is the host a redirect names, without path or query."""

    status: int
    body: bytes
    retry_after: str
    elsewhere: str = ""

    @property
    def trouble(self) -> str:
        """The status in words, for an error's text."""
        if not self.elsewhere:
            return f"status {self.status}"
        return (
            f"status {self.status}, a redirect to {self.elsewhere} that is not followed: name the address that "
            "answers itself"
        )


class ModelEndpoint:
    """One address of a model service.

    Args:
        section: The section of the settings it comes from, for messages: "llm" or "embedding".
        base_url: The service's address; a query in it is kept.
        operation: What is asked for, such as "chat/completions".
        api_key: Sent as a bearer token, to this host alone.
        proxy: The address of a proxy; none by default.
        max_bytes: The longest answer that is read.
    """

    def __init__(
        self,
        section: str,
        base_url: str,
        operation: str,
        *,
        api_key: str = "",
        proxy: str = "",
        max_bytes: int = 16 * 1024 * 1024,
    ) -> None:
        self.url, self.host, self._is_tls = _address(section, "base_url", base_url, operation)
        if not api_key.isascii() or not api_key.isprintable():
            raise Misconfigured(
                f"[{section}] api_key holds characters no header can carry.", setting=f"{section}.api_key"
            )
        if proxy:
            _address(section, "proxy", proxy, "")
        self._proxy = proxy or None
        self._max_bytes = max_bytes
        self._headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "cairn",
        }
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._trusted: ssl.SSLContext | None = None

    def post(self, body: bytes, seconds: float) -> Reply:
        """Send `body` and read the whole answer within `seconds`, over a line of its own.

        Raises:
            NoAnswer: no connection, no HTTP, too long an answer, or no time left.
        """
        import httpx2

        if seconds <= 0:
            raise NoAnswer("no time left")
        line = _Line()
        # Timeouts of a socket restart with every byte; this clock does not, so a dripping server is cut off too.
        alarm = threading.Timer(seconds, line.hang_up)
        alarm.daemon = True
        alarm.start()
        try:
            with (
                httpx2.Client(
                    verify=self._certificates(),
                    trust_env=False,
                    follow_redirects=False,
                    proxy=self._proxy,
                    timeout=httpx2.Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS)),
                ) as client,
                client.stream(
                    "POST", self.url, content=body, headers=self._headers, extensions={"trace": line.note}
                ) as reply,
            ):
                data = bytearray()
                for piece in reply.iter_raw():
                    data += piece
                    if len(data) > self._max_bytes:
                        raise NoAnswer(f"the answer is larger than {self._max_bytes} bytes")
                moved = reply.headers.get("Location", "") if 300 <= reply.status_code < 400 else ""
                return Reply(
                    reply.status_code, bytes(data), reply.headers.get("Retry-After", ""), _host_of(moved)
                )
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, httpx2.CookieConflict) as error:
            raise NoAnswer(f"{type(error).__name__}: {error}") from None
        except (OSError, UnicodeError) as error:
            raise NoAnswer(f"{type(error).__name__}: {error}") from None
        finally:
            alarm.cancel()

    def _certificates(self) -> ssl.SSLContext:
        """The system's certificates, read once; nobody's where no line is encrypted, for reading them takes time."""
        if self._trusted is None:
            import ssl

            is_needed = self._is_tls or (self._proxy or "").startswith("https:")
            self._trusted = (
                ssl.create_default_context() if is_needed else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            )
        return self._trusted


class _Line:
    """The connection of one request: known as soon as it is made, so that another thread can end it."""

    def __init__(self) -> None:
        self._stream: Any = None
        self._is_late = False

    def note(self, event: str, info: Mapping[str, Any]) -> None:
        """Told by the library what goes on."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._stream = info["return_value"]
            if self._is_late:
                self.hang_up()

    def hang_up(self) -> None:
        self._is_late = True
        with suppress(OSError, AttributeError):
            self._stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)


def _address(section: str, name: str, url: str, operation: str) -> tuple[str, str, bool]:
    """The address to ask, its host, and whether it is TLS. A name and password in it are not sent."""
    wrong = Misconfigured(
        f'[{section}] {name} = "{re.sub(r"//[^/@]*@", "//", url)}" is not an http or https address that names a host '
        "and a usable port.",
        setting=f"{section}.{name}",
    )
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        raise wrong from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise wrong
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    query = f"?{parts.query}" if parts.query else ""
    path = parts.path.rstrip("/")
    return f"{parts.scheme}://{host}{port}{path}/{operation}{query}", parts.hostname, parts.scheme == "https"


def _host_of(location: str) -> str:
    """What a redirect may be called in a message: scheme, host and port, whatever else stands there."""
    if not location:
        return ""
    try:
        parts = urlsplit(location)
    except ValueError:
        return "an address that cannot be read"
    if not parts.hostname:
        return "another path"
    shown = f"{parts.scheme or 'http'}://{parts.netloc.rpartition('@')[2]}"
    return re.sub(r"[^\w.:/\[\]-]", "?", shown[:100], flags=re.ASCII)
