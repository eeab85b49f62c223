"""Predict seconds, dollars and memory before paying. Called by MLproject; `paretune estimate` is the same."""

import sys

from paretune.cli.main import main
from paretune.cli.where_typed import go_where_typed

if __name__ == "__main__":
    go_where_typed(sys.argv)
    sys.exit(main(["estimate", *sys.argv[1:]]))
