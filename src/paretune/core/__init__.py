"""What everything stands on, from the standard library only: errors, clock, interruption, text."""
