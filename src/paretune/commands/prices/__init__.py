"""The command `paretune prices`."""
