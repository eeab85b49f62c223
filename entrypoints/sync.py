"""Bring MLflow up to date with jobs that nobody watches. Called by MLproject; `paretune sync` is the same."""

import sys

from paretune.cli.invocation import go_where_typed
from paretune.cli.main import main

if __name__ == "__main__":
    go_where_typed(sys.argv)
    sys.exit(main(["sync", *sys.argv[1:]]))
