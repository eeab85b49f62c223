"""Broken inputs, and inputs meant to do harm: what a user can pass, with everything in it that should not be there."""
