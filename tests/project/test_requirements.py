"""What must be there and is not fails; what may be absent skips."""

import pytest

from tests.helpers.requirements import VARIABLE, need, required


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
