"""Predict the rows of a file with a registered or local model. Called by MLproject; `paretune predict` is the same."""

import sys

from paretune.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["predict", *sys.argv[1:]]))
