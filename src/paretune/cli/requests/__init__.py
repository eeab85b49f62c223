"""What was typed, checked, before anything slow is imported.

readers           one function per command: from parameter texts to its request, all faults at once
own_parameters    `PricesRequest`, `ReportRequest`: parameters that no job has
"""
