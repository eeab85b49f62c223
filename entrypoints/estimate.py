"""Predict seconds, dollars and memory before paying. Called by MLproject; `paretune estimate` is the same."""

import sys

from paretune.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["estimate", *sys.argv[1:]]))
