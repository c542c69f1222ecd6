"""Record directories and log directories at URLs."""
