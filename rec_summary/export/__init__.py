"""From record directories to what other tools read; first of all TensorBoard event files.

    record file ─► decode ─► last value of a step ─► dashboards ─► event file

`events` decodes and reports damage, `repeats` drops values that were recorded twice,
`dashboards` says what each kind of record becomes, `tags` keeps series apart, `event_file`
and `logdir` put them on disk, and `tensorboard` runs it all. Nothing in here needs
MindSpore.
"""
