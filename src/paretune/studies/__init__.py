"""Studies: which configuration to pay for, found with few jobs.

- `definition`: study files, read and checked, and the file reader that designs share.
- `search`: asks for trials, runs their jobs, books their dollars, stops.
- `results`: the front, what is recommended, and how it is shown.
- `run`: a study from its file to its answer, by one process at a time.
- `verification`: trains recommended points again with other seeds.
"""
