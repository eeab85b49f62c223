"""The command `estimate`: what was asked, the table of answers, and the short jobs that make them certain.

EstimateRequest   which jobs to estimate
run_estimate      their time, memory and cost, as a table
run_probes        jobs of a few steps that measure the speed of each
"""
