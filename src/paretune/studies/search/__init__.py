"""Which trials a study runs, and what it books; the only door to Optuna."""
