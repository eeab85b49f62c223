"""Tables of runs that were made elsewhere: read, looked up between their rows, replayed, brought into MLflow."""
