"""The command `paretune import`."""
