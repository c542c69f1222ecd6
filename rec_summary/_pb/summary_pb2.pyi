from rec_summary._pb import anf_ir_pb2 as _anf_ir_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Event(_message.Message):
    __slots__ = ("wall_time", "step", "version", "graph_def", "summary", "explain", "compaction", "writer")
    WALL_TIME_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    GRAPH_DEF_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    EXPLAIN_FIELD_NUMBER: _ClassVar[int]
    COMPACTION_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    wall_time: float
    step: int
    version: str
    graph_def: _anf_ir_pb2.GraphProto
    summary: Summary
    explain: Explain
    compaction: Compaction
    writer: int
    def __init__(self, wall_time: _Optional[float] = ..., step: _Optional[int] = ..., version: _Optional[str] = ..., graph_def: _Optional[_Union[_anf_ir_pb2.GraphProto, _Mapping]] = ..., summary: _Optional[_Union[Summary, _Mapping]] = ..., explain: _Optional[_Union[Explain, _Mapping]] = ..., compaction: _Optional[_Union[Compaction, _Mapping]] = ..., writer: _Optional[int] = ...) -> None: ...

class Compaction(_message.Message):
    __slots__ = ("superseded", "last_time", "bucket_steps", "least_bucket_steps")
    SUPERSEDED_FIELD_NUMBER: _ClassVar[int]
    LAST_TIME_FIELD_NUMBER: _ClassVar[int]
    BUCKET_STEPS_FIELD_NUMBER: _ClassVar[int]
    LEAST_BUCKET_STEPS_FIELD_NUMBER: _ClassVar[int]
    superseded: _containers.RepeatedScalarFieldContainer[str]
    last_time: float
    bucket_steps: int
    least_bucket_steps: int
    def __init__(self, superseded: _Optional[_Iterable[str]] = ..., last_time: _Optional[float] = ..., bucket_steps: _Optional[int] = ..., least_bucket_steps: _Optional[int] = ...) -> None: ...

class Summary(_message.Message):
    __slots__ = ("value",)
    class Image(_message.Message):
        __slots__ = ("height", "width", "colorspace", "encoded_image")
        HEIGHT_FIELD_NUMBER: _ClassVar[int]
        WIDTH_FIELD_NUMBER: _ClassVar[int]
        COLORSPACE_FIELD_NUMBER: _ClassVar[int]
        ENCODED_IMAGE_FIELD_NUMBER: _ClassVar[int]
        height: int
        width: int
        colorspace: int
        encoded_image: bytes
        def __init__(self, height: _Optional[int] = ..., width: _Optional[int] = ..., colorspace: _Optional[int] = ..., encoded_image: _Optional[bytes] = ...) -> None: ...
    class Histogram(_message.Message):
        __slots__ = ("buckets", "nan_count", "pos_inf_count", "neg_inf_count", "max", "min", "sum", "count", "population")
        class bucket(_message.Message):
            __slots__ = ("left", "width", "count")
            LEFT_FIELD_NUMBER: _ClassVar[int]
            WIDTH_FIELD_NUMBER: _ClassVar[int]
            COUNT_FIELD_NUMBER: _ClassVar[int]
            left: float
            width: float
            count: int
            def __init__(self, left: _Optional[float] = ..., width: _Optional[float] = ..., count: _Optional[int] = ...) -> None: ...
        BUCKETS_FIELD_NUMBER: _ClassVar[int]
        NAN_COUNT_FIELD_NUMBER: _ClassVar[int]
        POS_INF_COUNT_FIELD_NUMBER: _ClassVar[int]
        NEG_INF_COUNT_FIELD_NUMBER: _ClassVar[int]
        MAX_FIELD_NUMBER: _ClassVar[int]
        MIN_FIELD_NUMBER: _ClassVar[int]
        SUM_FIELD_NUMBER: _ClassVar[int]
        COUNT_FIELD_NUMBER: _ClassVar[int]
        POPULATION_FIELD_NUMBER: _ClassVar[int]
        buckets: _containers.RepeatedCompositeFieldContainer[Summary.Histogram.bucket]
        nan_count: int
        pos_inf_count: int
        neg_inf_count: int
        max: float
        min: float
        sum: float
        count: int
        population: int
        def __init__(self, buckets: _Optional[_Iterable[_Union[Summary.Histogram.bucket, _Mapping]]] = ..., nan_count: _Optional[int] = ..., pos_inf_count: _Optional[int] = ..., neg_inf_count: _Optional[int] = ..., max: _Optional[float] = ..., min: _Optional[float] = ..., sum: _Optional[float] = ..., count: _Optional[int] = ..., population: _Optional[int] = ...) -> None: ...
    class Value(_message.Message):
        __slots__ = ("tag", "scalar_value", "image", "tensor", "histogram", "loss_landscape", "pr_curve", "reliability", "top_ids", "metric_states", "metric_table", "slice_sums")
        TAG_FIELD_NUMBER: _ClassVar[int]
        SCALAR_VALUE_FIELD_NUMBER: _ClassVar[int]
        IMAGE_FIELD_NUMBER: _ClassVar[int]
        TENSOR_FIELD_NUMBER: _ClassVar[int]
        HISTOGRAM_FIELD_NUMBER: _ClassVar[int]
        LOSS_LANDSCAPE_FIELD_NUMBER: _ClassVar[int]
        PR_CURVE_FIELD_NUMBER: _ClassVar[int]
        RELIABILITY_FIELD_NUMBER: _ClassVar[int]
        TOP_IDS_FIELD_NUMBER: _ClassVar[int]
        METRIC_STATES_FIELD_NUMBER: _ClassVar[int]
        METRIC_TABLE_FIELD_NUMBER: _ClassVar[int]
        SLICE_SUMS_FIELD_NUMBER: _ClassVar[int]
        tag: str
        scalar_value: float
        image: Summary.Image
        tensor: _anf_ir_pb2.TensorProto
        histogram: Summary.Histogram
        loss_landscape: LossLandscape
        pr_curve: PrCurve
        reliability: Reliability
        top_ids: TopIds
        metric_states: MetricStates
        metric_table: MetricTable
        slice_sums: SliceSums
        def __init__(self, tag: _Optional[str] = ..., scalar_value: _Optional[float] = ..., image: _Optional[_Union[Summary.Image, _Mapping]] = ..., tensor: _Optional[_Union[_anf_ir_pb2.TensorProto, _Mapping]] = ..., histogram: _Optional[_Union[Summary.Histogram, _Mapping]] = ..., loss_landscape: _Optional[_Union[LossLandscape, _Mapping]] = ..., pr_curve: _Optional[_Union[PrCurve, _Mapping]] = ..., reliability: _Optional[_Union[Reliability, _Mapping]] = ..., top_ids: _Optional[_Union[TopIds, _Mapping]] = ..., metric_states: _Optional[_Union[MetricStates, _Mapping]] = ..., metric_table: _Optional[_Union[MetricTable, _Mapping]] = ..., slice_sums: _Optional[_Union[SliceSums, _Mapping]] = ...) -> None: ...
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: _containers.RepeatedCompositeFieldContainer[Summary.Value]
    def __init__(self, value: _Optional[_Iterable[_Union[Summary.Value, _Mapping]]] = ...) -> None: ...

class LossLandscape(_message.Message):
    __slots__ = ("landscape", "loss_path", "metadata", "convergence_point")
    class Point(_message.Message):
        __slots__ = ("x", "y", "z")
        X_FIELD_NUMBER: _ClassVar[int]
        Y_FIELD_NUMBER: _ClassVar[int]
        Z_FIELD_NUMBER: _ClassVar[int]
        x: _anf_ir_pb2.TensorProto
        y: _anf_ir_pb2.TensorProto
        z: _anf_ir_pb2.TensorProto
        def __init__(self, x: _Optional[_Union[_anf_ir_pb2.TensorProto, _Mapping]] = ..., y: _Optional[_Union[_anf_ir_pb2.TensorProto, _Mapping]] = ..., z: _Optional[_Union[_anf_ir_pb2.TensorProto, _Mapping]] = ...) -> None: ...
    class LossPath(_message.Message):
        __slots__ = ("intervals", "points", "intervals64")
        INTERVALS_FIELD_NUMBER: _ClassVar[int]
        POINTS_FIELD_NUMBER: _ClassVar[int]
        INTERVALS64_FIELD_NUMBER: _ClassVar[int]
        intervals: _containers.RepeatedScalarFieldContainer[int]
        points: LossLandscape.Point
        intervals64: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, intervals: _Optional[_Iterable[int]] = ..., points: _Optional[_Union[LossLandscape.Point, _Mapping]] = ..., intervals64: _Optional[_Iterable[int]] = ...) -> None: ...
    class Metadata(_message.Message):
        __slots__ = ("decomposition", "unit", "step_per_epoch", "seed", "explained_variance", "samples", "selection", "moved", "eigenvalues")
        DECOMPOSITION_FIELD_NUMBER: _ClassVar[int]
        UNIT_FIELD_NUMBER: _ClassVar[int]
        STEP_PER_EPOCH_FIELD_NUMBER: _ClassVar[int]
        SEED_FIELD_NUMBER: _ClassVar[int]
        EXPLAINED_VARIANCE_FIELD_NUMBER: _ClassVar[int]
        SAMPLES_FIELD_NUMBER: _ClassVar[int]
        SELECTION_FIELD_NUMBER: _ClassVar[int]
        MOVED_FIELD_NUMBER: _ClassVar[int]
        EIGENVALUES_FIELD_NUMBER: _ClassVar[int]
        decomposition: str
        unit: str
        step_per_epoch: int
        seed: int
        explained_variance: _containers.RepeatedScalarFieldContainer[float]
        samples: int
        selection: str
        moved: int
        eigenvalues: _containers.RepeatedScalarFieldContainer[float]
        def __init__(self, decomposition: _Optional[str] = ..., unit: _Optional[str] = ..., step_per_epoch: _Optional[int] = ..., seed: _Optional[int] = ..., explained_variance: _Optional[_Iterable[float]] = ..., samples: _Optional[int] = ..., selection: _Optional[str] = ..., moved: _Optional[int] = ..., eigenvalues: _Optional[_Iterable[float]] = ...) -> None: ...
    LANDSCAPE_FIELD_NUMBER: _ClassVar[int]
    LOSS_PATH_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    CONVERGENCE_POINT_FIELD_NUMBER: _ClassVar[int]
    landscape: LossLandscape.Point
    loss_path: LossLandscape.LossPath
    metadata: LossLandscape.Metadata
    convergence_point: LossLandscape.Point
    def __init__(self, landscape: _Optional[_Union[LossLandscape.Point, _Mapping]] = ..., loss_path: _Optional[_Union[LossLandscape.LossPath, _Mapping]] = ..., metadata: _Optional[_Union[LossLandscape.Metadata, _Mapping]] = ..., convergence_point: _Optional[_Union[LossLandscape.Point, _Mapping]] = ...) -> None: ...

class Explain(_message.Message):
    __slots__ = ("sample_id", "image_path")
    SAMPLE_ID_FIELD_NUMBER: _ClassVar[int]
    IMAGE_PATH_FIELD_NUMBER: _ClassVar[int]
    sample_id: int
    image_path: str
    def __init__(self, sample_id: _Optional[int] = ..., image_path: _Optional[str] = ...) -> None: ...

class PrCurve(_message.Message):
    __slots__ = ("true_positives", "false_positives", "true_negatives", "false_negatives", "precision", "recall")
    TRUE_POSITIVES_FIELD_NUMBER: _ClassVar[int]
    FALSE_POSITIVES_FIELD_NUMBER: _ClassVar[int]
    TRUE_NEGATIVES_FIELD_NUMBER: _ClassVar[int]
    FALSE_NEGATIVES_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    RECALL_FIELD_NUMBER: _ClassVar[int]
    true_positives: _containers.RepeatedScalarFieldContainer[float]
    false_positives: _containers.RepeatedScalarFieldContainer[float]
    true_negatives: _containers.RepeatedScalarFieldContainer[float]
    false_negatives: _containers.RepeatedScalarFieldContainer[float]
    precision: _containers.RepeatedScalarFieldContainer[float]
    recall: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, true_positives: _Optional[_Iterable[float]] = ..., false_positives: _Optional[_Iterable[float]] = ..., true_negatives: _Optional[_Iterable[float]] = ..., false_negatives: _Optional[_Iterable[float]] = ..., precision: _Optional[_Iterable[float]] = ..., recall: _Optional[_Iterable[float]] = ...) -> None: ...

class Reliability(_message.Message):
    __slots__ = ("predicted", "observed", "weights")
    PREDICTED_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    predicted: _containers.RepeatedScalarFieldContainer[float]
    observed: _containers.RepeatedScalarFieldContainer[float]
    weights: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, predicted: _Optional[_Iterable[float]] = ..., observed: _Optional[_Iterable[float]] = ..., weights: _Optional[_Iterable[float]] = ...) -> None: ...

class TopIds(_message.Message):
    __slots__ = ("ids", "counts", "low", "high")
    IDS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    counts: _containers.RepeatedScalarFieldContainer[float]
    low: _containers.RepeatedScalarFieldContainer[float]
    high: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, ids: _Optional[_Iterable[int]] = ..., counts: _Optional[_Iterable[float]] = ..., low: _Optional[_Iterable[float]] = ..., high: _Optional[_Iterable[float]] = ...) -> None: ...

class MetricTable(_message.Message):
    __slots__ = ("cells", "columns")
    CELLS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    cells: _containers.RepeatedScalarFieldContainer[str]
    columns: int
    def __init__(self, cells: _Optional[_Iterable[str]] = ..., columns: _Optional[int] = ...) -> None: ...

class MetricStates(_message.Message):
    __slots__ = ("states", "rank", "rank_size", "step", "wall_time", "examples", "final", "settings", "brief")
    class Array(_message.Message):
        __slots__ = ("name", "dtype", "shape", "data", "deflated")
        NAME_FIELD_NUMBER: _ClassVar[int]
        DTYPE_FIELD_NUMBER: _ClassVar[int]
        SHAPE_FIELD_NUMBER: _ClassVar[int]
        DATA_FIELD_NUMBER: _ClassVar[int]
        DEFLATED_FIELD_NUMBER: _ClassVar[int]
        name: str
        dtype: str
        shape: _containers.RepeatedScalarFieldContainer[int]
        data: bytes
        deflated: bool
        def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ..., deflated: bool = ...) -> None: ...
    class State(_message.Message):
        __slots__ = ("key", "kind", "arrays")
        KEY_FIELD_NUMBER: _ClassVar[int]
        KIND_FIELD_NUMBER: _ClassVar[int]
        ARRAYS_FIELD_NUMBER: _ClassVar[int]
        key: str
        kind: str
        arrays: _containers.RepeatedCompositeFieldContainer[MetricStates.Array]
        def __init__(self, key: _Optional[str] = ..., kind: _Optional[str] = ..., arrays: _Optional[_Iterable[_Union[MetricStates.Array, _Mapping]]] = ...) -> None: ...
    STATES_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    RANK_SIZE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    WALL_TIME_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    BRIEF_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedCompositeFieldContainer[MetricStates.State]
    rank: int
    rank_size: int
    step: int
    wall_time: float
    examples: int
    final: bool
    settings: str
    brief: bool
    def __init__(self, states: _Optional[_Iterable[_Union[MetricStates.State, _Mapping]]] = ..., rank: _Optional[int] = ..., rank_size: _Optional[int] = ..., step: _Optional[int] = ..., wall_time: _Optional[float] = ..., examples: _Optional[int] = ..., final: bool = ..., settings: _Optional[str] = ..., brief: bool = ...) -> None: ...

class SliceSums(_message.Message):
    __slots__ = ("after", "columns", "tags", "numbers")
    class Column(_message.Message):
        __slots__ = ("task", "column", "several", "values", "arrays")
        TASK_FIELD_NUMBER: _ClassVar[int]
        COLUMN_FIELD_NUMBER: _ClassVar[int]
        SEVERAL_FIELD_NUMBER: _ClassVar[int]
        VALUES_FIELD_NUMBER: _ClassVar[int]
        ARRAYS_FIELD_NUMBER: _ClassVar[int]
        task: str
        column: str
        several: bool
        values: _containers.RepeatedScalarFieldContainer[str]
        arrays: _containers.RepeatedCompositeFieldContainer[MetricStates.Array]
        def __init__(self, task: _Optional[str] = ..., column: _Optional[str] = ..., several: bool = ..., values: _Optional[_Iterable[str]] = ..., arrays: _Optional[_Iterable[_Union[MetricStates.Array, _Mapping]]] = ...) -> None: ...
    AFTER_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    after: int
    columns: _containers.RepeatedCompositeFieldContainer[SliceSums.Column]
    tags: _containers.RepeatedScalarFieldContainer[str]
    numbers: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, after: _Optional[int] = ..., columns: _Optional[_Iterable[_Union[SliceSums.Column, _Mapping]]] = ..., tags: _Optional[_Iterable[str]] = ..., numbers: _Optional[_Iterable[float]] = ...) -> None: ...
