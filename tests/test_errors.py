from rec_summary.errors import RecordError, three_part, verbatim


def test_three_parts_in_their_order():
    assert three_part("collect_freq", 0, "an int of at least 1") == (
        "collect_freq is invalid. Received: 0. Expected: an int of at least 1."
    )


def test_a_long_value_does_not_hide_what_was_expected():
    text = three_part("tag", "x" * 10_000, "a shorter one")
    assert len(text) < 300
    assert text.endswith("Expected: a shorter one.")


def test_a_value_without_a_text_hides_neither_what_it_is_nor_what_was_expected():
    class Unprintable:
        def __repr__(self):
            raise RuntimeError

    assert "Received: a value of Unprintable. Exp" in three_part("tag", Unprintable(), "a str")
    assert "Received: a value of int. Expected" in three_part("tag", 10**5000, "a shorter one")


def test_a_path_of_the_longest_length_hides_neither_the_file_nor_the_reason():
    path = "/check/" + "directory/" * 60 + "events.summary.1"
    text = three_part("the source", verbatim(f"2 files; {path}, offset 0: it is cut"), "records")
    assert "Received: 2 files; /check/directory/" in text
    assert "directory/events.summary.1, offset 0: it is cut. Expected: records." in text
    longer = three_part(
        "the source", verbatim(f"2 files; /{'x' * 9_000}/last, offset 7"), "records"
    )
    assert len(longer) < 1_100
    assert "Received: 2 files; /xxx" in longer
    assert "xxx/last, offset 7. Expected" in longer


def test_verbatim_text_has_no_quotation_marks():
    assert "Received: 3 of 9 bytes." in three_part("it", verbatim("3 of 9 bytes"), "9")


def test_a_record_error_names_file_and_offset():
    error = RecordError("/a/file", 12, "a record", "x", "y")
    assert (error.path, error.offset) == ("/a/file", 12)
    assert str(error).startswith("/a/file, offset 12: ")
