"""Studies: which configuration to pay for, found with few jobs.

- `definition`: the files of studies and designs, read and checked.
- `search`: asks for trials, runs their jobs, books their dollars, stops.
- `results`: the front, what is recommended, and how it is shown.
- `design`: a table of jobs, planned before it is paid.
"""
