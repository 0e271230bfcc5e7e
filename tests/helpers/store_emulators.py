"""Stores of this machine that imitate others: Azure's (Azurite), Google's (gcp-storage-emulator) and one behind ssh (asyncssh).

Requests go through a proxy that counts, and fails as it is told (tests/helpers/faulty_proxy.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.helpers import faulty_proxy
from tests.helpers.faulty_proxy import Wire

_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The key of Azurite's one account, which its documentation publishes."""
_SERVER = """
import asyncio, asyncssh, sys

class Server(asyncssh.SSHServer):
    def begin_auth(self, user): return True
    def password_auth_supported(self): return True
    def validate_password(self, user, word): return (user, word) == ("user", "word")

async def main():
    made = lambda channel: asyncssh.SFTPServer(channel, chroot=sys.argv[2])
    key = asyncssh.generate_private_key("ssh-ed25519")
    await asyncssh.create_server(Server, "127.0.0.1", int(sys.argv[1]), server_host_keys=[key], sftp_factory=made)
    await asyncio.sleep(1e9)

asyncio.run(main())
"""

_THREADED = """
import http.server, sys

http.server.HTTPServer = http.server.ThreadingHTTPServer  # of two connections it would serve the first until that ends
from gcp_storage_emulator.__main__ import main

main(sys.argv[1:])
"""


@dataclass
class Emulator:
    """A store with one bucket or folder.

    url         of it
    dead        the same at a port where nobody answers
    proxy       what stands before it
    environment what a client needs to find it
    nowhere     what a client needs to find nobody
    files       the file system itself, past the proxy
    root        the bucket or folder there
    takes_requests  of HTTP, so that the proxy fails by request, and by connection elsewhere
    """

    url: str
    dead: str
    proxy: Any
    environment: dict[str, str]
    nowhere: dict[str, str]
    files: Any
    root: str
    takes_requests: bool = True

    def read(self, name: str) -> bytes | None:
        self.files.invalidate_cache()
        try:
            return bytes(self.files.cat_file(f"{self.root}/{name}"))
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        path = f"{self.root}/{name}"
        if path.startswith("/"):
            self.files.makedirs(path.rpartition("/")[0], exist_ok=True)
        with tempfile.NamedTemporaryFile() as local:
            local.write(content)
            local.flush()
            self.files.put_file(local.name, path)

    def remove(self, name: str) -> None:
        self.files.rm_file(f"{self.root}/{name}")

    def names(self, folder: str) -> list[str]:
        self.files.invalidate_cache()
        try:
            return sorted(file.rpartition("/")[2] for file in self.files.ls(f"{self.root}/{folder}", detail=False))
        except FileNotFoundError:
            return []


def hurry(patch: pytest.MonkeyPatch) -> None:
    """Let the packages of Azure and Google wait for a moment only, before they ask again by themselves: for others it is half a minute."""
    with contextlib.suppress(ImportError):
        from azure.storage.blob._shared.policies_async import ExponentialRetry

        patch.setattr(ExponentialRetry, "get_backoff_time", lambda *_: 0.01)
    with contextlib.suppress(ImportError):
        import gcsfs.retry

        async def sleep(_: float) -> None:
            await asyncio.sleep(0.01)

        patch.setattr(gcsfs.retry, "asyncio", SimpleNamespace(sleep=sleep))


def azurite() -> str | None:
    """The command of Azurite's blob service: AZURITE names it, or it is on the PATH."""
    return os.environ.get("AZURITE") or shutil.which("azurite-blob")


@contextlib.contextmanager
def azure(folder: Path) -> Iterator[Emulator]:
    """Azurite, and Azure's client as adlfs has it."""
    from adlfs import AzureBlobFileSystem

    def key(port: int) -> str:
        account = f"DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={_KEY}"
        return f"{account};BlobEndpoint=http://127.0.0.1:{port}/devstoreaccount1;"

    port = _free()
    words = [azurite() or "", "--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--blobPort", str(port)]
    with _started(words, port), faulty_proxy.serving(("127.0.0.1", port)) as proxy:
        files = AzureBlobFileSystem(connection_string=key(port), skip_instance_cache=True)
        files.mkdir("bucket")
        variable = "AZURE_STORAGE_CONNECTION_STRING"
        around = {variable: key(proxy.server_address[1])}, {variable: key(_free())}
        yield Emulator("az://bucket", "az://bucket", proxy, *around, files, "bucket")


@contextlib.contextmanager
def google(folder: Path) -> Iterator[Emulator]:
    """gcp-storage-emulator, and Google's client as gcsfs has it."""
    rest = {"GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}  # it asks Google itself what kind of bucket it is
    os.environ.update(rest)  # before it is imported
    from gcsfs import GCSFileSystem

    port = _free()
    words = [sys.executable, "-c", _THREADED, "start", "--host", "127.0.0.1", "--port", str(port), "-M", "-q"]
    with _started(words, port), faulty_proxy.serving(("127.0.0.1", port)) as proxy:
        address = f"http://127.0.0.1:{port}"
        files = GCSFileSystem(endpoint_url=address, token="anon", skip_instance_cache=True)
        files.mkdir("bucket")
        near, away = (rest | {"STORAGE_EMULATOR_HOST": nearby} for nearby in (proxy.address, f"http://127.0.0.1:{_free()}"))
        yield Emulator("gs://bucket", "gs://bucket", proxy, near, away, files, "bucket")


@contextlib.contextmanager
def ssh(folder: Path) -> Iterator[Emulator]:
    """asyncssh's server of SFTP, and the client that fsspec finds: paramiko's, or sshfs where that is installed."""
    from fsspec.implementations.local import LocalFileSystem

    port = _free()
    (folder / "root" / "home").mkdir(parents=True)
    with _started([sys.executable, "-c", _SERVER, str(port), str(folder / "root")], port):
        wire = Wire(("127.0.0.1", port))
        try:
            near, dead = (f"sftp://user:word@127.0.0.1:{number}/home" for number in (wire.port, _free()))
            yield Emulator(near, dead, wire, {}, {}, LocalFileSystem(), str(folder / "root" / "home"), takes_requests=False)
        finally:
            wire.end()


def _free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextlib.contextmanager
def _started(words: Sequence[str], port: int) -> Iterator[None]:
    """A server of this machine, from when it answers on."""
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if server.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{words[0]} does not answer")
            time.sleep(0.05)
        yield
    finally:
        server.terminate()
        server.wait()
