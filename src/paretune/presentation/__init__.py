"""The look of pages, pictures, tables and numbers, for studies and reports.

- `text`: values as text, such as dollars and durations; tables for a terminal.
- `page`: HTML templates, which share `style.css`, `table.html` and `tables.js`; plotly charts; the look of each kind of
  mark.
"""
