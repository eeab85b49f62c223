"""The command `prices`: the prices of a region.

command  registers the command
request  PricesRequest: which region, and whether to read today's prices from AWS
run      shows the known prices, or reads and stores today's
cache    prices read from AWS, kept in the user's home folder
"""
