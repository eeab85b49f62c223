"""The command `train`, in MLproject `main`: one job. `paretune.jobs` does the work."""
