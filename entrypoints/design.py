"""Plan and run a designed experiment. Called by MLproject; `paretune design` is the same."""

import sys

from paretune.cli.main import main
from paretune.cli.where_typed import go_where_typed

if __name__ == "__main__":
    go_where_typed(sys.argv)
    sys.exit(main(["design", *sys.argv[1:]]))
