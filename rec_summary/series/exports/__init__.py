"""What exports that follow new records have in common, whatever they write.

* `directory`: the directory that one exporter at a time writes to.
* `cursor`: how far the export of a run has come, in a file of that directory.
* `reading`: reads the files of a run from where an earlier export stopped.
* `following`: keeps the exporters of all runs of a tree up to date.
"""
