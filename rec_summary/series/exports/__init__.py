"""What exports share that go on with new records, whatever they write.

* `directory`: the directory that one exporter at a time writes to.
* `reading`: reads the files of a run from where an earlier export stopped.
* `cursor`: states in files of that directory.
* `following`: keeps the exporters of all runs of a tree up to date.
"""
