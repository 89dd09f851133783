"""`cairn open`: the page in a browser, by a link that works once, from the server that runs or from one of its own."""

from __future__ import annotations

import argparse
import http.client
import socket
import threading
import webbrowser
from urllib.parse import urlsplit

from cairn.config import load
from cairn.surfaces.output import Output
from cairn.web.visitors import Visitors


def open_page(args: argparse.Namespace, output: Output) -> int:
    """Open the page; where no server serves this root, serve it here until Ctrl-C."""
    settings = load(args.root)
    visitors = Visitors(settings.server_dir)
    address = str(visitors.served().get("address", ""))
    if address and _answers(address):
        _show(f"{address}/view/open?code={visitors.offer()}", args, output)
        return 0
    from cairn.surfaces.http import serve

    host = "127.0.0.1"
    port = args.port or _free_port(host, settings.server.port)
    here = load(args.root, server__host=host, server__port=port)

    def ready(at: str) -> None:
        _show(f"{at}/view/open?code={visitors.offer()}", args, output)
        output.line("The page is served from here: Ctrl-C ends it.")

    serve(here, ready=ready, reread=lambda: load(args.root, server__host=host, server__port=port))
    return 0


def _show(link: str, args: argparse.Namespace, output: Output) -> None:
    output.value({"link": link})
    output.line(f"{link}\nThe link works once, within ten minutes.")
    if not args.no_browser and not output.as_json:
        # A browser may take its time, or be a text browser: nothing waits for it.
        threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()


def _answers(address: str) -> bool:
    parts = urlsplit(address)
    try:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=3)
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException, ValueError):
        return False


def _free_port(host: str, wanted: int) -> int:
    """The usual port, or any other where it is taken."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
                return int(probe.getsockname()[1])
            except OSError:
                continue
    return wanted
