"""Show the prices of a region, or read today's. Called by MLproject; `paretune prices` is the same."""

import sys

from paretune.cli.invocation import go_where_typed
from paretune.cli.main import main

if __name__ == "__main__":
    go_where_typed(sys.argv)
    sys.exit(main(["prices", *sys.argv[1:]]))
