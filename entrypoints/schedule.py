"""Print a scheduler's entry for the rounds of a study. Called by MLproject; `paretune schedule` is the same."""

import sys

from paretune.cli.invocation import go_where_typed
from paretune.cli.main import main

if __name__ == "__main__":
    go_where_typed(sys.argv)
    sys.exit(main(["schedule", *sys.argv[1:]]))
