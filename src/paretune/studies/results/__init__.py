"""What a study has found: trials, front, recommendation, page."""
