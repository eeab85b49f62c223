"""Rounds of a study, one process at a time: who may work on it now.

lease.Lease    a lease on the study with a fencing token, in its storage
"""
