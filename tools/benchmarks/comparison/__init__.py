"""Other packages for the same purpose, beside ours."""
