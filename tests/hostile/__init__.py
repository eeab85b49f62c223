"""Inputs that want to do harm, or are broken: what a user can give, with everything in it that she should not."""
