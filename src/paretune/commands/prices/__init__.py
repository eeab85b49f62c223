"""The command `prices`: the prices of a region.

command  PricesRequest: which region, and whether to read today's prices from AWS
prices   PriceTable, which `paretune.prices` of the Python API returns; reads today's prices from AWS's Pricing API
"""
