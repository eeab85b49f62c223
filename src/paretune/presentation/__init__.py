"""The look of pages, pictures, tables and numbers, for studies and reports.

- `text`: values as text, such as dollars and durations; tables of texts for a terminal.
- `page`: HTML templates, with `style.css`, `table.html` and `tables.js` for all of them; charts of plotly; how kinds
  of marks look.
"""
