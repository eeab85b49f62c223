"""What was typed, checked, before anything slow is imported."""
