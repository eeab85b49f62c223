"""Errors, time, signals and small algorithms for all other folders; standard library only."""
