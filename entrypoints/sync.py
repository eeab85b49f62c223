"""Bring MLflow up to date with jobs that nobody watches. Called by MLproject; `paretune sync` is the same."""

import sys

from paretune.cli.main import main
from paretune.cli.where_typed import go_where_typed

if __name__ == "__main__":
    go_where_typed(sys.argv)
    sys.exit(main(["sync", *sys.argv[1:]]))
