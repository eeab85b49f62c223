"""Check machine, account and server, or pay for one small job. Called by MLproject; `paretune doctor` is the same."""

import sys

from paretune.cli.main import main
from paretune.cli.where_typed import go_where_typed

if __name__ == "__main__":
    go_where_typed(sys.argv)
    sys.exit(main(["doctor", *sys.argv[1:]]))
