"""Pages to look at: JSON and arrays in one HTML file that loads nothing."""
