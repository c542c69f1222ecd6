"""Records as tables: pandas DataFrames, CSV, JSON Lines, Parquet, HTML and plots."""
