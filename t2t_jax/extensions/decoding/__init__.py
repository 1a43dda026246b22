"""Outputs that are not plain translations: preserved parts, labels, filled masks."""
