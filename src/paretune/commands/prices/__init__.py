"""The command `prices`: the prices of a region.

command     PricesRequest: which region, and whether to read today's prices from AWS
run         shows the known prices, or reads and stores today's
table       PriceTable; `paretune.prices` of the Python API returns it
price_list  today's prices, from AWS's Pricing API or its public file
cache       prices read from AWS, kept in the user's home folder
"""
