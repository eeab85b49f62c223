"""Table recorded runs, priced again. Called by MLproject; `paretune report` is the same."""

import sys

from paretune.cli.main import main
from paretune.cli.where_typed import go_where_typed

if __name__ == "__main__":
    go_where_typed(sys.argv)
    sys.exit(main(["report", *sys.argv[1:]]))
