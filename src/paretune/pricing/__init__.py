"""Prices of instances, costs of jobs, and limits on them.

prices         PriceList, Price     hourly prices by instance type and region, with date and source
               usual_price          the price of a job's instances, without asking AWS
               price_remarks        doubts about a price, for the user
budget         admit, cost_usd      cost of a job; what is left of a budget. Its worst case: `Launcher.worst_case_usd`
"""
