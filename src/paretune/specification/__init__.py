"""The specification of a job, and the documents that travel into it."""
