"""S3 as moto imitates it, failing at each of its actions: read by ranges, written whole or not at all, resumed by listings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.batch import stores, uploads
from rnnconvert.containers import asking, safetensors
from rnnconvert.core.errors import UnreadableError, UsageError
from tests.batch.test_batch import arrays, call
from tests.helpers import faulty_s3
from tests.helpers.requirements import needed

needed("moto", "moto")
s3fs = needed("moto", "s3fs")
fsspec = needed("moto", "fsspec")

OUT = f"s3://{faulty_s3.BUCKET}/out"
PART = 64 << 10
"""The smallest part that the imitation takes here: less memory and time."""
SMALLEST_PART = 5 << 20
"""The smallest part that S3 takes."""
FEW = (
    ("CreateMultipartUpload", "503"), ("UploadPart", "500"), ("UploadPart", "cut"), ("CompleteMultipartUpload", "500"),
    ("CompleteMultipartUpload", "after"), ("CompleteMultipartUpload", "inside"), ("HeadObject", "500"),
)  # fmt: skip


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, faulty_s3.Store]]:
    with faulty_s3.serving() as served:
        yield served
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def store(address: tuple[str, faulty_s3.Store], monkeypatch: pytest.MonkeyPatch) -> faulty_s3.Store:
    """A store with one empty bucket, and a client that leaves trying again to us."""
    for name, value in {
        "ENDPOINT_URL": address[0], "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "DEFAULT_REGION": "us-east-1",
        "MAX_ATTEMPTS": "1",
    }.items():  # fmt: skip
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setattr(asking, "_PAUSES", (0.01, 0.01, 0.01))
    assert uploads._PART >= SMALLEST_PART
    monkeypatch.setattr(uploads, "_PART", PART)
    monkeypatch.setattr("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", PART)
    address[1].begin()
    return address[1]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of three parts."""
    path = tmp_path_factory.mktemp("large") / "a"
    path.write_bytes(np.random.default_rng(0).bytes(2 * PART + 1000))
    return path


def test_only_header_and_recurrent_arrays_travel(store: faulty_s3.Store, tmp_path: Path) -> None:
    around = {"embedding.weight": np.ones((1000, 500), np.float32), "head.weight": np.ones((700, 400), np.float32)}
    safetensors.write(tmp_path / "big.safetensors", {**around, **arrays(3)})
    store.put("big.safetensors", (tmp_path / "big.safetensors").read_bytes())
    with stores.fetched(f"s3://{faulty_s3.BUCKET}/big.safetensors") as local:
        there, here = (rc.load(path).layers["rnn"].first for path in (local, tmp_path / "big.safetensors"))
        assert all(np.array_equal(np.asarray(there.arrays[key]), np.asarray(here.arrays[key])) for key in here.arrays)
        assert local.stat().st_size == (tmp_path / "big.safetensors").stat().st_size > 3_000_000
    assert store.sent < 70_000 and store.asked == {"HeadObject": 1, "GetObject": 2}


@pytest.mark.parametrize("ending", ["safetensors", "pt"])
def test_what_passes_is_borne_by_readers(ending: str, store: faulty_s3.Store, tmp_path: Path) -> None:
    safetensors.write(tmp_path / "m.safetensors", arrays(3, 40))
    rc.convert(tmp_path / "m.safetensors", tmp_path / "m.pt")
    content = (tmp_path / f"m.{ending}").read_bytes()
    store.put("m." + ending, content)
    for fault in ("500", "503", "cut", "slow"):
        store.faults = {"HeadObject": [fault], "GetObject": [fault, "", fault, fault]}
        with stores.fetched(f"s3://{faulty_s3.BUCKET}/m.{ending}") as local:
            assert local.read_bytes() == content
        assert store.delivered[fault] >= 2, fault


def test_a_no_is_not_asked_for_again(store: faulty_s3.Store) -> None:
    store.always = {"HeadObject": "403"}
    with pytest.raises(UnreadableError, match="PermissionError"):
        stores.state(f"s3://{faulty_s3.BUCKET}/m.pt")
    assert store.delivered["403"] == 1


def test_a_target_is_whole_whatever_fails_once(store: faulty_s3.Store, large: Path, pytestconfig: pytest.Config) -> None:
    every = [(action, fault) for action in dict(FEW) for fault in faulty_s3.FAULTS]
    for action, fault in every if pytestconfig.getoption("--long") else FEW:
        store.begin()
        store.put("out/a", b"old")
        store.watched, store.faults = "out/a", {action: ["", fault] if action == "UploadPart" else [fault]}
        uploads.put(large, f"{OUT}/a")
        assert store.delivered[fault] == 1 and store.seen <= {b"old", large.read_bytes()}, (action, fault)
        assert store.content("out/a") == large.read_bytes(), (action, fault)
        # An upload whose number never arrived is left for the bucket's own rules.
        assert len(store.uploads()) == ((action, fault) == ("CreateMultipartUpload", "after")), (action, fault)
        assert action != "HeadObject" or store.asked["CompleteMultipartUpload"] == 1  # what has arrived is not sent again


@pytest.mark.parametrize("action", ["CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"])
@pytest.mark.parametrize("fault", ["500", "inside"])
def test_what_stays_wrong_leaves_the_old_target_and_no_upload(action: str, fault: str, store: faulty_s3.Store, large: Path) -> None:
    store.put("out/a", b"old")
    store.watched, store.always = "out/a", {action: fault}
    with pytest.raises(UsageError, match=r"out/a: cannot write there: .* injected"):
        uploads.put(large, f"{OUT}/a")
    assert store.content("out/a") == b"old" and store.seen <= {b"old"} and not store.uploads()


def test_a_bucket_that_is_not_there_is_named_and_not_made(store: faulty_s3.Store, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"new")
    with pytest.raises(UsageError, match="s3://typo/out/a: cannot write there"):
        uploads.put(tmp_path / "a", "s3://typo/out/a")
    assert store.ask("GET", "/typo").status_code == 404


def test_a_batch_goes_on_where_the_store_failed(store: faulty_s3.Store, tmp_path: Path) -> None:
    """A multipart upload that cannot be completed is the only one that is done again."""
    safetensors.write(tmp_path / "m", arrays(9, 820))
    store.put("in/large.safetensors", (tmp_path / "m").read_bytes())
    for number in range(2):
        safetensors.write(tmp_path / "m", arrays(number))
        store.put(f"in/m{number}.safetensors", (tmp_path / "m").read_bytes())
    words: tuple[object, ...] = (f"s3://{faulty_s3.BUCKET}/in/*.safetensors", "--to", "onnx", "--out", OUT, "--jobs", 1, "--json")
    words += ("--journal", tmp_path / "j")
    store.always, store.watched = {"CompleteMultipartUpload": "500"}, "out/large.onnx"
    code, output = call(*words)
    document = json.loads(output[output.index('{\n "exit') :] if '{\n "exit' in output else output)
    assert code == 74 and document["counts"] == {"0": 2, "74": 1}, document
    assert not store.seen and not store.uploads() and store.content("out/m1.onnx")
    store.always = {}
    code, output = call(*words)
    assert code == 0 and json.loads(output)["resumed"] == 2
    assert len(store.seen) == 1 and store.asked["CompleteMultipartUpload"] == 5
    (tmp_path / "large.onnx").write_bytes(store.content("out/large.onnx") or b"")
    assert rc.load(tmp_path / "large.onnx").layers


def test_resuming_lists_folders(store: faulty_s3.Store, tmp_path: Path) -> None:
    for number in range(20):
        safetensors.write(tmp_path / "m", arrays(number))
        store.put(f"in/m{number}.safetensors", (tmp_path / "m").read_bytes())
    listed = tmp_path / "list.txt"
    listed.write_text("\n".join(f"s3://{faulty_s3.BUCKET}/in/m{number}.safetensors" for number in range(20)))
    words = (listed, "--to", "onnx", "--out", OUT, "--jobs", 1, "--json", "--journal", tmp_path / "j")
    assert call(*words)[0] == 0
    store.asked.clear()
    assert json.loads(call(*words)[1])["resumed"] == 20
    assert store.asked == {"ListObjects": 2}
    store.asked.clear()
    store.always = {"ListObjects": "403"}  # as for a key that may not list
    assert json.loads(call(*words)[1])["resumed"] == 20
    assert store.asked == {"ListObjects": 2, "HeadObject": 40}
    store.always = {}
    # Another source, and a target that is gone and one that is another.
    store.put("in/m3.safetensors", (tmp_path / "m").read_bytes())
    store.ask("DELETE", f"/{faulty_s3.BUCKET}/out/m5.onnx")
    store.put("out/m7.onnx", b"another")
    assert json.loads(call(*words)[1])["resumed"] == 17
    assert len(store.content("out/m7.onnx") or b"") > 100


class Paged:
    """Objects that are listed three at a time, as S3 lists them."""

    protocol = ("s3", "s3a")

    def __init__(self, keys: list[str]) -> None:
        self.keys, self.pages = sorted(keys), 0

    def split_path(self, path: str) -> tuple[str, str, None]:
        bucket, _, key = path.partition("/")
        return bucket, key, None

    def call_s3(self, action: str, Bucket: str, Prefix: str, Delimiter: str, StartAfter: str) -> dict[str, Any]:
        self.pages += 1
        rest = [key for key in self.keys if key.startswith(Prefix) and key > StartAfter]
        return {"Contents": [{"Key": key, "Size": len(key), "ETag": f'"{key}"'} for key in rest[:3]], "IsTruncated": len(rest) > 3}


@pytest.mark.parametrize("step", [1, 2, 7, 50])
def test_a_listing_has_no_more_pages_than_names(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a folder with many others only the pages with names that are asked about are read."""
    here = [f"out/m{number:04}.onnx" for number in range(1000)]
    asked = here[5::step][:20]
    paged = Paged([*here, "out", "other/a", *(key + "x" for key in here[::9])])
    monkeypatch.setattr(asking, "system", lambda url: (paged, url.partition("://")[2]))
    listed = stores.states([f"s3://b/{key}" for key in [*asked, "out/absent", "out/m0006.onn"]])
    assert listed == {f"s3://b/{key}": f'{len(key)} "{key}"' for key in asked}
    assert paged.pages <= min(22, 3 + 22 * step // 2)


def test_other_stores_are_listed_as_a_whole() -> None:
    memory = fsspec.filesystem("memory")
    for number in range(120):
        memory.pipe_file(f"/listed/m{number}", b"x" * number)
    urls = [f"memory://listed/m{number}" for number in range(110)]
    try:
        assert stores.states(urls) == {url: stores.state(url) for url in urls}
        assert not stores.states(urls[:50])
    finally:
        memory.rm("/listed", recursive=True)
