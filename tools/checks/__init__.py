"""The checks of `tools/check` that are programs: acceptance and fuzz."""
