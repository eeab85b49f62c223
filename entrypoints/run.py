"""What MLproject calls: `python entrypoints/run.py NAME --key value` is `paretune NAME --key value`."""

import sys

from paretune.cli import go_where_typed, main

if __name__ == "__main__":
    words = sys.argv[1:]
    go_where_typed(words)
    sys.exit(main(words))
