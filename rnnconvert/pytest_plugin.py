"""For pytest: prove in your own tests that two models compute the same.

def test_the_export(rnnconvert):
    rnnconvert.assert_equivalent("model.pt", "model.onnx")
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rnnconvert.verification.report import Report


class Equivalence:
    """The value of the fixture `rnnconvert`."""

    def verify(self, a: Any, b: Any = None, **choices: Any) -> Report:
        """Return a report on two models, or on one on several executors: see rnnconvert.verify."""
        from rnnconvert.verification.verify import verify

        return verify(a, b, **choices)

    def assert_equivalent(self, a: Any, b: Any = None, *, strict: bool = False, **choices: Any) -> Report:
        """Fail with the report unless the models compute the same; else return the report, which is true if they are equal.

        Fails, too, if no framework is here to run them: an equivalence that nobody ran is not one. What was left out is a
        warning; with strict=True it fails.
        """
        __tracebackhide__ = True
        report = self.verify(a, b, strict=strict, **choices)
        if report.exit_code:
            pytest.fail(str(report), pytrace=False)
        if report.conclusion.limits:
            warnings.warn(str(report.conclusion), stacklevel=2)
        return report


@pytest.fixture(scope="session")
def rnnconvert() -> Equivalence:
    """Return the fixture that proves that models compute the same: rnnconvert.assert_equivalent(a, b)."""
    return Equivalence()
