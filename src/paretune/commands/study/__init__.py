"""The command `study`: the front of a study within its budget. `paretune.studies` does the work."""
