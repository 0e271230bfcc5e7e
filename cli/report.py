"""rnnconvert report: a saved report, in other forms."""

from __future__ import annotations

import click

from rnnconvert.cli.terminal import FilePath, emit, put, put_lines, say, styled

_EPILOG = """\b
Examples:
  rnnconvert report report.json
  rnnconvert report report.json -o report.html
  rnnconvert report report.json -o junit.xml -o comment.md
  rnnconvert report batch.json -o all.html
  rnnconvert report --schema
"""


@click.command(epilog=_EPILOG)
@click.argument("document", type=FilePath(), required=False)
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    metavar="FILE",
    type=FilePath(),
    help="File to write: .html, .md, .json, .xml (JUnit) or .sarif. Repeatable.",
)
@click.option("--schema", "show_schema", is_flag=True, help="Print the JSON Schema of reports.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors.")
def report(document: str | None, outputs: tuple[str, ...], show_schema: bool, as_json: bool, quiet: bool) -> None:
    """Write the JSON report DOCUMENT, or a batch's, in other forms; without -o, print it as text.

    The exit code is 0 for every verdict.
    """
    from collections import Counter

    from rnnconvert import reports
    from rnnconvert.batch import outcomes
    from rnnconvert.core.errors import UsageError
    from rnnconvert.reports import many
    from rnnconvert.reports.document import checked, values

    if show_schema:
        from rnnconvert.reports.schema import SCHEMA

        put_lines(SCHEMA.read_text(encoding="utf-8"))
        return
    if document is None:
        raise UsageError("no report given. Name the JSON report: rnnconvert report REPORT.json -o FILE")
    read = values(document)
    entries = outcomes.index_of(read, document)
    if entries is None:
        reports.check(*outputs)
        content = checked(read, document)
        reports.write(content, *outputs)
    else:
        many.check_forms(*outputs)
        many.write(outcomes.TITLE, entries, *outputs)
    for path in outputs:
        say(f"wrote {path}", quiet)
    if as_json:
        emit(read)
    elif not outputs and entries is not None:
        for word, count in Counter(entry.word for entry in entries).most_common():
            put(f"{count:>8,}  {word}")
    elif not outputs:
        from rnnconvert.reports.text import to_text

        put_lines(str(content["verdict"]) if quiet else to_text(content, styled))
