"""An empty folder, for pages that make their own records."""
