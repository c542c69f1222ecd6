"""Records and log directories at URLs."""
