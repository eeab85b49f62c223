"""Studies: which configuration to pay for, found with few jobs."""
