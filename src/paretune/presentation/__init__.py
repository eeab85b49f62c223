"""The look of pages, pictures, tables and numbers, for studies and reports.

- `numbers`: values as text: dollars, durations, values with their errors.
- `table.Table`: a table declared by its columns; for a terminal, Markdown, pages (with `tables.js`), CSV and JSON.
- `page.template`: HTML templates, with `style.css` and `macros.html` for all of them.
- `picture.Picture`: a matplotlib figure, as an SVG element with classes and tooltips and as a PNG; the colours.
- `chart.Chart`: the scatter chart of a study, drawn by `picture`; chart.js and chart.css let readers choose its axes.
- `scale.Scale`: positions and ticks of an axis, with breaks for outliers.
"""
