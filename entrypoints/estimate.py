"""Predict seconds, dollars and memory before paying. Called by MLproject; `paretune estimate` is the same."""

import sys

from paretune.cli.invocation import go_where_typed
from paretune.cli.main import main

if __name__ == "__main__":
    go_where_typed(sys.argv)
    sys.exit(main(["estimate", *sys.argv[1:]]))
