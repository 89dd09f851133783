"""The floor of the HTTP part: a bare Starlette route that reads a JSON body and sends one back.

Run as `python -m benchmarks._echo PORT`, on the same uvicorn settings as the product's server.
"""

from __future__ import annotations

import json
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


async def echo(request: Request) -> Response:
    body = json.loads(await request.body())
    return JSONResponse({"request_id": "0" * 32, "data": {"message_count": len(body.get("messages", ()))}})


async def health(_request: Request) -> Response:
    return JSONResponse({"status": "ok"})


def main() -> None:
    app = Starlette(
        routes=[Route("/echo", echo, methods=["POST"]), Route("/health", health, methods=["GET"])]
    )
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        ws="none",
    )


if __name__ == "__main__":
    main()
