"""Files on disk and in buckets: atomic writes, manifests, growing files, the cache."""
