"""Check machine, account and server, or pay for one small job. Called by MLproject; `paretune doctor` is the same."""

import sys

from paretune.cli.invocation import go_where_typed
from paretune.cli.main import main

if __name__ == "__main__":
    go_where_typed(sys.argv)
    sys.exit(main(["doctor", *sys.argv[1:]]))
