"""Tables of recorded runs: read, looked up, interpolated."""
