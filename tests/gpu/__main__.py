"""`python -m tests.gpu`: see tests/gpu.sh."""

import sys

from tests.gpu.command import main

sys.exit(main(sys.argv[1:]))
