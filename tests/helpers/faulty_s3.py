"""An object store as moto imitates S3, that fails as it is told; and after each request it is seen whether anything is half written."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import parse_qs

from tests.helpers.serving import running

BUCKET = "bucket"
FAULTS = ("500", "503", "cut", "slow", "after", "inside")
"""An error; a busy server; a connection that ends in the middle of the answer; bytes that drop in; a connection that ends after the
server has done what was asked, without an answer; and an error in an answer that says 200, as CompleteMultipartUpload has them."""
_SIGNED = "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
_ERROR = b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>%s</Code><Message>injected</Message></Error>'


def action(environ: dict[str, Any]) -> str:
    """What S3 calls a request, as far as it is met here."""
    query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
    method = environ["REQUEST_METHOD"]
    if "uploads" in query or "uploadId" in query:
        names = {"PUT": "UploadPart", "DELETE": "AbortMultipartUpload", "GET": "ListMultipartUploads"}
        return names.get(method, "CreateMultipartUpload" if "uploads" in query else "CompleteMultipartUpload")
    if "list-type" in query:
        return "ListObjects"
    where = "Object" if environ["PATH_INFO"].strip("/").count("/") else "Bucket"
    return {"PUT": "Put", "GET": "Get", "HEAD": "Head", "DELETE": "Delete", "POST": "Post"}[method] + where


class Store:
    """What was asked, the faults to come for each action, one a request, and those of every request."""

    def __init__(self, answer: Callable[..., Iterable[bytes]]) -> None:
        self.answer = answer
        self.lock = threading.Lock()
        self.asked: Counter[str] = Counter()
        self.delivered: Counter[str] = Counter()
        self.faults: dict[str, list[str]] = {}
        self.always: dict[str, str] = {}
        self.seen: set[bytes] = set()
        self.watched = ""
        self.sent = 0

    def begin(self) -> None:
        """Forget everything, and have one empty bucket."""
        self.asked, self.delivered, self.faults, self.always = Counter(), Counter(), {}, {}
        self.seen, self.watched, self.sent = set(), "", 0
        self.ask("POST", "/moto-api/reset")
        self.ask("PUT", f"/{BUCKET}")

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        name = action(environ)
        with self.lock:
            self.asked[name] += 1
            waiting = self.faults.get(name, [])
            fault = self.always.get(name, "") or (waiting.pop(0) if waiting else "")
            self.delivered[fault] += 1
        if fault.isdigit():
            return _refusal(environ, start, fault)
        if fault == "inside":
            start("200 OK", [("Content-Type", "application/xml")])
            return [_ERROR % b"InternalError"]
        body = b"".join(self.answer(environ, start)) if fault not in ("cut", "after") else b""
        if fault in ("cut", "after"):
            return self._broken(environ, start, fault)
        self._look()
        self.sent += len(body)
        if fault == "slow":
            return _dropping(body)
        return [body]

    def _broken(self, environ: dict[str, Any], start: Callable[..., Any], fault: str) -> Iterable[bytes]:
        """End the connection before what was asked is done (in the middle of the answer, if it is one of bytes), or after it."""
        if fault == "after" or environ["REQUEST_METHOD"] == "GET":
            body = b"".join(self.answer(environ, start))
            self._look()
            if fault == "cut":
                return _half(environ, body)
        return _half(environ, b"")

    def _look(self) -> None:
        """Keep what the watched object holds now."""
        if self.watched:
            content = self.content(self.watched)
            if content is not None:
                self.seen.add(content)

    def content(self, key: str) -> bytes | None:
        """The bytes of an object; None where it does not exist."""
        got = self.ask("GET", f"/{BUCKET}/{key}")
        return got.data if got.status_code == 200 else None

    def uploads(self) -> list[str]:
        """The multipart uploads that are neither completed nor aborted."""
        return re.findall(r"<UploadId>", self.ask("GET", f"/{BUCKET}?uploads").text)

    def put(self, key: str, content: bytes) -> None:
        self.ask("PUT", f"/{BUCKET}/{key}", content)

    def ask(self, method: str, path: str, content: bytes = b"") -> Any:
        """Ask the store itself, past all faults."""
        from werkzeug.test import Client

        return Client(self.answer).open(path, method=method, data=content, headers={"Authorization": _SIGNED})


def _refusal(environ: dict[str, Any], start: Callable[..., Any], status: str) -> Iterable[bytes]:
    code = {"500": b"InternalError", "503": b"ServiceUnavailable", "403": b"AccessDenied"}[status]
    body = b"" if environ["REQUEST_METHOD"] == "HEAD" else _ERROR % code
    start(f"{status} Injected", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]


def _dropping(body: bytes) -> Iterator[bytes]:
    step = max(1, len(body) // 5)
    for at in range(0, max(1, len(body)), step):
        yield body[at : at + step]
        time.sleep(0.01)


def _half(environ: dict[str, Any], body: bytes) -> Iterator[bytes]:
    """Send a half of an answer, then close the connection."""
    if body:
        yield body[: len(body) // 2]
    with contextlib.suppress(OSError):
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    raise ConnectionAbortedError


@contextlib.contextmanager
def serving() -> Iterator[tuple[str, Store]]:
    """A store with one bucket on a port of this machine, and its address; ended afterwards."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

    class Handler(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log(self, *_: Any, **__: Any) -> None:
            pass

    application = DomainDispatcherApplication(create_backend_app)
    store = Store(application)
    store.begin()
    server = ThreadedWSGIServer("127.0.0.1", 0, store, Handler)
    with running(server):
        yield f"http://127.0.0.1:{server.port}", store
