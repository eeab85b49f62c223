"""The results of a study, from trials that have ended to the answer and its page."""
