"""Reports on any set of recorded jobs: tables, figures and findings in words.

- `observations.Observation`: one completed job as a report compares it; `Kind`: what may be compared with each other.
- `estimated`: jobs that were only estimated, read back from the tables of `estimate`.
- `spread.Spread`: mean and sample standard deviation of repeats; intervals.
- `totals.totals`: dollars by study, month, tag and instance type.
- `scaling.scalings`: what larger clusters, or any other factor, do to seconds, dollars and F1.
- `comparison.comparisons`: one setting against another.
- `regression`: straight lines, and whether they hold; `findings`: what both say in words.
- `scaling_figures`, `comparison_figures`: the pictures.
- `report.Report`: sections of tables, sentences and pictures, as text, Markdown and an HTML page.
"""
