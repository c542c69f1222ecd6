"""What exports that follow new records have in common, whatever they write.

* `claims`: which exporter writes which runs.
* `directory`: the directory that exporters write to, each its own runs.
* `cursor`: how far the export of a run has come, in a file of that directory.
* `reading`: reads the files of a run from where an earlier export stopped.
* `following`: keeps the exporters of all runs of a tree up to date.
"""
