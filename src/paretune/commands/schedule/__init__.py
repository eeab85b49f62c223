"""The command `schedule`: entries for the schedulers that call `paretune study --once` every few minutes."""
