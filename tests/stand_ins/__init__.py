"""Services that tests talk to in place of the real ones."""
