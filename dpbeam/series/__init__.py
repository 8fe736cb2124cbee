"""Series: many nights of releases from growing data, for one budget (docs/explanation/series.md)."""
