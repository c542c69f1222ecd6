"""TensorBoard reads record directories directly: no export, no copy.

From the bottom up: `served_run` is a TensorBoard run that keeps scalars as samples and everything
else as references to records, and `served_outputs` adds to it; `run_index` reads the runs of a
tree and keeps them up to date; `data_provider` is TensorBoard's interface to them, and to event
files beside them. `grpc_server` serves an interface to other processes, `board` runs a TensorBoard
in this one, and `plugin` is what `tensorboard` itself loads. Beside this interface,
`records_plugin` adds the page of recommenders, and `records_projector` extends the Projector.
"""
