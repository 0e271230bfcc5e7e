"""What pytest looks for doctests in: the script that made the references needs every framework, and has none."""

collect_ignore = ["make_references.py"]
