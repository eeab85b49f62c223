"""Runs in MLflow: written, read back and found. MLflow is imported here, and for projects of other people elsewhere.

`store`, `run` and `models` import MLflow, which takes two seconds of CPU: other folders import them in functions where
a command may not need them.
"""
