"""One job. Called by MLproject; `paretune main` is the same."""

import sys

from paretune.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["main", *sys.argv[1:]]))
