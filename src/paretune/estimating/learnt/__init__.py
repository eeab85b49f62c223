"""Seconds of trainings of the user's own, learnt from their finished runs; nothing is known before one has run."""
