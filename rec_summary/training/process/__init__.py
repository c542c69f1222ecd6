"""The process that trains: which program it is, signals, and how it ends."""
