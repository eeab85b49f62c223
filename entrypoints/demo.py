"""A whole simulated study with nothing to configure. Called by MLproject; `paretune demo` is the same."""

import sys

from paretune.cli.invocation import go_where_typed
from paretune.cli.main import main

if __name__ == "__main__":
    go_where_typed(sys.argv)
    sys.exit(main(["demo", *sys.argv[1:]]))
