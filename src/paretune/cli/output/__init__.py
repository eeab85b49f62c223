"""Texts, tables and documents that commands print.

answer            `Answer`: text and JSON document of a command; `error_document`: of one that fails
report_tables     the tables of `report`
repricing         what recorded runs would cost on other terms
accuracy          how far estimates lay from what was measured
"""
