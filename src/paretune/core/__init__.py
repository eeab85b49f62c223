"""Code that other folders share: errors, clocks, signals, facts about this machine, users' scripts, small algorithms.

Third-party libraries are imported inside the functions that need them.
"""
