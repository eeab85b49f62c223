"""The parts of `search_cost.py`: tables of jobs, searches over them, and what their fronts are worth."""
