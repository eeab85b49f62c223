"""Ways of dividing a model that have not been run on GPUs yet.

Only jobs that divide their model in such a way import these modules. docs/own-data.md lists what has not been
tested on GPUs yet.
"""
