"""Show the prices of a region, or read today's. Called by MLproject; `paretune prices` is the same."""

import sys

from paretune.cli.main import main
from paretune.cli.where_typed import go_where_typed

if __name__ == "__main__":
    go_where_typed(sys.argv)
    sys.exit(main(["prices", *sys.argv[1:]]))
