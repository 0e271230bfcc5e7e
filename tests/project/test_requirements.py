"""What must be there and is not fails; what may be absent skips."""

import pytest

from tests.helpers.requirements import VARIABLE, need, needed, required


def test_what_is_there_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "torch")
    need("torch", "")


def test_an_absent_thing_skips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "jax, torch")
    with pytest.raises(pytest.skip.Exception, match="mxnet: no interpreter"):
        need("mxnet", "no interpreter")


def test_an_absent_thing_that_is_named_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "jax, mxnet")
    with pytest.raises(pytest.fail.Exception, match="names mxnet, and it cannot run: no interpreter"):
        need("mxnet", "no interpreter")


def test_a_misspelt_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "torhc")
    with pytest.raises(ValueError, match="names torhc; there are aiohttp, azure, browser"):
        required()


def test_what_cannot_be_required_is_no_reason_to_skip() -> None:
    """Under a name that RNNCONVERT_REQUIRE cannot have, a framework could be absent everywhere, unseen."""
    with pytest.raises(ValueError, match="cannot name pytorch; there are aiohttp"):
        need("pytorch", "not installed")
    with pytest.raises(ValueError, match="cannot name pytorch"):
        needed("pytorch", "torch")
