"""One module for each entry point: what the command does."""
