"""MindSpore's record format: framing, file names, the protobuf wire format."""
