"""Prepares users' own scripts and MLflow projects as jobs, and collects what these have recorded."""
