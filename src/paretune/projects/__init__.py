"""MLflow projects of other people as jobs: their commands, their environments, and what they record."""
