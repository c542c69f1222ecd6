"""Does TensorBoard show everything that was recorded, and nothing else?

    records ─► `expected`: what FORMATS' rules make of them, without the exporter's code
    export  ─► TensorBoard, both loaders ─► `shown`: what its HTTP interface answers

`compare` holds one against the other, dashboard by dashboard, value by value.
"""
