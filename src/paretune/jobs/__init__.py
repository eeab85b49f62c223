"""One job, from its specification to its recorded run, and found again."""
