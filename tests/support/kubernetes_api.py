"""Stands in for a Kubernetes API server: takes whatever is made, and keeps it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dev.services.ports import HOST


class Taken:
    """What a client has sent: the kind of each object -> the objects."""

    def __init__(self) -> None:
        self.url = ""
        self.objects: dict[str, list[Any]] = {}


@contextmanager
def kubernetes_api() -> Iterator[Taken]:
    """Run it while the block does."""
    taken = Taken()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            sent = json.loads(self.rfile.read(length)) if length else {}
            if sent:
                taken.objects.setdefault(sent["kind"], []).append(sent)
                # Kubernetes adds these
                sent["metadata"] |= {"uid": "1", "resourceVersion": "1"}
            body = json.dumps(sent).encode()
            self.send_response(201)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PUT = do_PATCH = answer

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    server = ThreadingHTTPServer((HOST, 0), Handler)
    taken.url = f"http://{HOST}:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield taken
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
