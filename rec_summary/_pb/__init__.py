"""Protocol buffers of the records. Generated from `proto/` by `tools/proto`: do not edit."""
