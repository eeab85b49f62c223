"""Studies: which configuration to pay for, found with few jobs.

- `definition`: the study file, read and checked.
- `search`: asks for trials, runs their jobs, books their dollars, stops.
- `results`: the front, what is recommended, and how it is shown.
"""
