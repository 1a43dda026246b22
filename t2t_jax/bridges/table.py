"""The formats: what `import` reads and what `export` writes. Add yours here."""

from t2t_jax.bridges.formats import ExportFormat, ImportFormat

# The first format that recognizes a path reads it.
IMPORTS: dict[str, ImportFormat] = {}
EXPORTS: dict[str, ExportFormat] = {}
