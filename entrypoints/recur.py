"""Tonight's run of a recurring training. Called by MLproject; `paretune recur` is the same."""

import sys

from paretune.cli.invocation import go_where_typed
from paretune.cli.main import main

if __name__ == "__main__":
    go_where_typed(sys.argv)
    sys.exit(main(["recur", *sys.argv[1:]]))
