"""Plan and run a designed experiment. Called by MLproject; `paretune design` is the same."""

import sys

from paretune.cli.invocation import go_where_typed
from paretune.cli.main import main

if __name__ == "__main__":
    go_where_typed(sys.argv)
    sys.exit(main(["design", *sys.argv[1:]]))
