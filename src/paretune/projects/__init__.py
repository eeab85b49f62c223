"""Trainings of the user's own as jobs: scripts and MLflow projects, their code, their commands and their records."""
