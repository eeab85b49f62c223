"""What can be asked for, and what travels into a job."""
