"""How pages, pictures and numbers look: the one home of style for studies and reports.

- `numbers`: values as text: dollars, durations, values with their errors.
- `picture.Picture`: a figure, as an SVG element with tooltips and as a matplotlib figure for a PNG; the colours.
- `page.template`: HTML templates; `style.css` and `macros.html` (tables, lists) belong to all of them.
- `page.Table`: rows of text for HTML, Markdown and a terminal.
"""
