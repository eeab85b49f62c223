"""Plan and run a designed experiment. Called by MLproject; `paretune design` is the same."""

import sys

from paretune.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["design", *sys.argv[1:]]))
