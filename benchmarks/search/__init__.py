"""The parts of `search_cost.py`: tables of jobs, searches over them, and the scores of their fronts."""
