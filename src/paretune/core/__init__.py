"""Errors, clocks, signals, facts about this machine, and small algorithms that all folders use.

Third-party libraries are imported inside the functions that need them.
"""
