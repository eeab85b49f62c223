"""Print a scheduler's entry for the rounds of a study. Called by MLproject; `paretune schedule` is the same."""

import sys

from paretune.cli.main import main
from paretune.cli.where_typed import go_where_typed

if __name__ == "__main__":
    go_where_typed(sys.argv)
    sys.exit(main(["schedule", *sys.argv[1:]]))
