"""What an hour of an instance costs.

prices   PriceList, Price      prices by instance type and region, with their date and source
         usual_price           the price of a job's instances, without AWS
         price_remarks         what a user should know of a price
cache    prices read from AWS, kept on this machine
"""
