"""The command `main`: one job. `paretune.jobs` does the work."""
