"""The search of a study: asks for trials, runs their jobs, books their dollars, stops."""
