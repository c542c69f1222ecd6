"""Keeping a run within a budget of bytes: old records get coarser, and the whole history stays.

`rewriting` makes one coarser file of several, `commit` puts it in their place so that a crash at
any moment loses nothing and shows nothing twice, `plan` chooses the files, and `directory` does all
of that for a record directory. `__main__` is the process that a writer starts for its own files.
"""
