"""Overrides variables of the script with a configuration file, and with --key=value."""

import sys
from ast import literal_eval

for argument in sys.argv[1:]:
    if "=" not in argument:
        print(f"Overriding config with {argument}:")
        print(open(argument).read())
        exec(open(argument).read())
    else:
        key, value = argument.removeprefix("--").split("=")
        print(f"Overriding: {key} = {value}")
        globals()[key] = literal_eval(value)
