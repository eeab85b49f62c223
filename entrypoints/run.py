"""What MLproject calls: `python entrypoints/run.py NAME --key value` is `paretune NAME --key value`."""

import sys

from paretune.cli import go_where_typed, main

if __name__ == "__main__":
    project = go_where_typed()
    sys.exit(main(sys.argv[1:], project))
