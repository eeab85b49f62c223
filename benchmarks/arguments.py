"""The switch `--small` of every benchmark."""

import argparse


def parse(parser: argparse.ArgumentParser, **small: object) -> argparse.Namespace:
    """Arguments of the command line; with `--small` the values of `small` for all that is not given there."""
    parser.add_argument("--small", action="store_true", help="the same within a minute; its figures mean nothing")
    asked = parser.parse_args()
    if asked.small:
        parser.set_defaults(**small)
        asked = parser.parse_args()
    return asked
