"""A server of files, with ranges as object stores have them, that fails as it is told: what a reader behind a URL has to bear."""

from __future__ import annotations

import contextlib
import http.server
import threading
import time
from collections.abc import Iterator

from tests.helpers.serving import running

FAULTS = ("500", "503", "cut", "slow", "short")
"""An error; a busy server; a connection that ends in the middle; bytes that drop in; an answer that is whole, but of fewer bytes."""


class Server(http.server.ThreadingHTTPServer):
    """files by path; faults are taken one for each request, in order; what was asked for is kept."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.faults: list[str] = []
        self.delivered: list[str] = []
        self.sent = 0
        self.always = ""
        self.lock = threading.Lock()

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"

    def fault(self) -> str:
        with self.lock:
            chosen = self.always or (self.faults.pop(0) if self.faults else "")
            self.delivered += [chosen] if chosen else []
            return chosen


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_HEAD(self) -> None:
        self._answer(False)

    def do_GET(self) -> None:
        self._answer(True)

    def _answer(self, with_body: bool) -> None:
        content = self.server.files.get(self.path.lstrip("/").partition("?")[0])
        fault = self.server.fault() if with_body else ""
        if content is None or fault.isdigit():
            self.send_response(int(fault) if fault else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        start, stop = 0, len(content)
        asked = self.headers.get("Range", "")
        if asked.startswith("bytes="):
            first, _, last = asked[6:].partition("-")
            start = int(first or 0)
            stop = min(stop, int(last) + 1) if last else stop
        body = content[start:stop]
        if fault == "short":
            body = body[: len(body) // 2]
        self.send_response(206 if asked else 200)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{hash(content)}"')
        self.send_header("Content-Length", str(len(body)))
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{start + len(body) - 1}/{len(content)}")
        self.end_headers()
        if not with_body:
            return
        if fault == "cut":
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            self.close_connection = True
            self.connection.close()
            return
        for at in range(0, len(body), max(1, len(body) // 5) if fault == "slow" else max(1, len(body))):
            self.wfile.write(body[at : at + max(1, len(body) // 5)] if fault == "slow" else body)
            if fault == "slow":
                time.sleep(0.01)
        self.server.sent += len(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    """A server on a port of this machine, ended afterwards."""
    server = Server()
    with running(server):
        yield server
