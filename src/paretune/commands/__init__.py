"""What each command does: one module per command, imported when it is called."""
