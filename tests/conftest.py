"""Set-up that all tests share."""

from __future__ import annotations

import os

import pytest

from tests import requirements

# TensorFlow reads these when it is first imported; its start-up notes would drown a failure's output.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
# Once in some thousand runs a TensorFlow with several threads gave a layer the output of the one before it.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
# PyTorch's threads would spin while they wait, which costs more than these small layers do.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a misspelt requirement before any test runs."""
    try:
        requirements.required()
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
