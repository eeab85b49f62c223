"""The parts of the benchmarks of searches: tables of jobs, searches over them, and the scores of their fronts."""
