"""Writing record files, in a background thread."""
