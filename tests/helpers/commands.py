"""The command line, run in the tests' own process."""

from __future__ import annotations

from click.testing import CliRunner, Result

from rnnconvert.cli.main import main


def call(*words: object, stdin: bytes | None = None, **environment: str) -> Result:
    """Run the command with these words. An exception that the command does not handle fails the test.

    stdin        its standard input
    environment  variables of its process
    """
    result = CliRunner().invoke(main, [str(word) for word in words], input=stdin, env=environment)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result
