"""Prepares users' own trainings, scripts and MLflow projects, as jobs, and collects what they have recorded."""
