"""The command line: what is typed (requests), done (commands) and read (output)."""
