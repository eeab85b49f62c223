"""The command `paretune schedule`."""
