"""A study's file: read, checked, and what it defines."""
