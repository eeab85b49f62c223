"""The command `prices`: the prices of a region (command, request, run)."""
