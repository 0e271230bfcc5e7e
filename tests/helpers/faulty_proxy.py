"""What stands between a client and a store and fails as it is told: of HTTP by request, of anything else by cutting connections."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

from tests.helpers.serving import running

FAULTS = ("500", "503", "cut", "slow", "after")
"""An error; a busy server; a connection that ends in the middle of the answer, or before what was asked is done; bytes that drop in;
and a connection that ends after the server has done what was asked, without an answer."""


class Proxy(http.server.ThreadingHTTPServer):
    """Requests go on to a server, but for those with a fault: a list for each method, one a request, and those of every request."""

    daemon_threads = True

    def __init__(self, server: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = server
        self.guard = threading.Lock()
        self.after_each: Callable[[], None] = lambda: None
        self.begin()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def begin(self) -> None:
        """Forget everything."""
        self.asked: Counter[str] = Counter()
        self.delivered: Counter[str] = Counter()
        self.faults: dict[str, list[str]] = {}
        self.always: dict[str, str] = {}
        self.sent = self.received = 0

    def fault(self, method: str) -> str:
        with self.guard:
            self.asked[method] += 1
            waiting = self.faults.get(method, [])
            chosen = self.always.get(method, "") or (waiting.pop(0) if waiting else "")
            self.delivered[chosen] += 1
            return chosen


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def _answer(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.server.fault(self.command)
        if fault.isdigit():
            self.send_response(int(fault))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if fault == "cut" and self.command != "GET":
            self._end()
            return
        behind = http.client.HTTPConnection(*self.server.behind)
        behind.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for key, value in self.headers.items():
            behind.putheader(key, value)
        behind.endheaders(content)
        answer = behind.getresponse()
        body = answer.read()
        behind.close()
        with self.server.guard:
            self.server.sent += len(body)
            self.server.received += len(content)
        self.server.after_each()
        if fault == "after":
            self._end()
            return
        self.send_response_only(answer.status, answer.reason)
        for key, value in answer.getheaders():
            if key.lower() not in ("transfer-encoding", "connection", "keep-alive", "content-length"):
                self.send_header(key, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else None
        if self.command != "HEAD" or length:
            self.send_header("Content-Length", length or str(len(body)))
        self.end_headers()
        if fault == "cut":
            self.wfile.write(body[: len(body) // 2])
            self._end()
            return
        step = max(1, len(body) // 5) if fault == "slow" else max(1, len(body))
        with contextlib.suppress(ConnectionError):  # a client may ask for two things, and end when it has one
            for at in range(0, len(body), step):
                self.wfile.write(body[at : at + step])
                time.sleep(0.01 if fault == "slow" else 0)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = do_PATCH = _answer

    def _end(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def serving(server: tuple[str, int]) -> Iterator[Proxy]:
    """A proxy on a port of this machine, ended afterwards."""
    proxy = Proxy(server)
    with running(proxy):
        yield proxy


class Wire:
    """A port whose connections go on to another; they are cut after so many bytes to the client, one number for each connection."""

    def __init__(self, server: tuple[str, int]) -> None:
        self.behind = server
        self.cuts: list[int] = []
        self.always = 0
        self.sent = self.received = self.connections = self.broken = 0
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.listening.getsockname()[1])

    def begin(self) -> None:
        """Forget everything; connections stay."""
        self.cuts, self.always = [], 0
        self.sent = self.received = self.connections = self.broken = 0

    def cut(self) -> None:
        """End every connection that is open."""
        for side in list(self.open):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        self.listening.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listening.accept()
                self.connections += 1
                left = self.always or (self.cuts.pop(0) if self.cuts else 1 << 60)
                behind = socket.create_connection(self.behind)
                self.open |= {client, behind}
                for source, target, most in ((client, behind, 0), (behind, client, left)):
                    threading.Thread(target=self._pass, args=(source, target, most), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, most: int) -> None:
        down, left = most > 0, most or 1 << 60
        with contextlib.suppress(OSError):
            while left > 0 and (block := source.recv(1 << 16)):
                target.sendall(block[:left])
                left -= len(block)
                self.sent += down * len(block)
                self.received += (not down) * len(block)
        self.broken += down and left <= 0
        for side in (source, target):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
