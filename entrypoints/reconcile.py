"""Compare AWS's bill with what was recorded. Called by MLproject; `paretune reconcile` is the same."""

import sys

from paretune.cli.main import main
from paretune.cli.where_typed import go_where_typed

if __name__ == "__main__":
    go_where_typed(sys.argv)
    sys.exit(main(["reconcile", *sys.argv[1:]]))
