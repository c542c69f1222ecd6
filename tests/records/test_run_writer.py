from rec_summary._pb import lineage_pb2, summary_pb2
from rec_summary.records.directory import find_runs
from rec_summary.records.names import Kind
from rec_summary.records.reader import RecordReader
from rec_summary.records.sink import FILE_VERSION, MessageRecord, RunWriter


def payloads(run, kind):
    [file] = run.of(kind, run.ranks[0])
    with RecordReader(file.path) as reader:
        return [record.payload for record in reader]


def test_records_go_into_the_file_of_their_kind_behind_a_version(tmp_path):
    writer = RunWriter(tmp_path / "records", rank=3)
    event = summary_pb2.Event(wall_time=12.5, step=7)
    event.summary.value.add(tag="loss", scalar_value=0.5)
    lineage = lineage_pb2.LineageEvent(wall_time=13.5)
    lineage.train_lineage.algorithm.network = "WideDeep"
    writer.write(MessageRecord(event))
    writer.write(MessageRecord(lineage))
    writer.close()
    [run] = find_runs(tmp_path)
    assert run.ranks == (3,)
    first, second = map(summary_pb2.Event.FromString, payloads(run, Kind.SUMMARY))
    assert first.version == FILE_VERSION
    assert second == event
    first, second = map(lineage_pb2.LineageEvent.FromString, payloads(run, Kind.LINEAGE))
    assert first.version == FILE_VERSION
    assert second == lineage


def test_two_writers_on_one_directory_have_files_of_their_own(tmp_path):
    writers = [RunWriter(tmp_path) for _ in range(3)]
    paths = [path for writer in writers for path in writer.paths]
    for writer in writers:
        writer.close()
    assert len(set(paths)) == 6
