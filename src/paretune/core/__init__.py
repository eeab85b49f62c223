"""Errors, time, signals, this machine and small algorithms for all folders; libraries are imported when called."""
