"""The look of pages, pictures, tables and numbers, for studies and reports.

- `numbers`: values as text: dollars, durations, values with their errors.
- `table.Table`: a table declared by its columns; for a terminal, Markdown, pages (with `tables.js`), CSV and JSON.
- `page.template`: HTML templates, with `style.css` and `macros.html` for all of them.
- `chart.chart_html`: a chart of plotly on a page; `chart.MARKS`: how kinds of marks look, also in pictures.
"""
