"""Study files: read, checked, and what they define."""
