"""python -m rnnconvert: the command line, where its script is not on the path."""

from rnnconvert.cli.main import main

if __name__ == "__main__":
    main(prog_name="rnnconvert")
