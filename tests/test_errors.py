from rec_summary.errors import RecordError, three_part, verbatim


def test_three_parts_in_their_order():
    assert three_part("collect_freq", 0, "an int of at least 1") == (
        "collect_freq is invalid. Received: 0. Expected: an int of at least 1."
    )


def test_a_long_value_does_not_hide_what_was_expected():
    text = three_part("tag", "x" * 10_000, "a shorter one")
    assert len(text) < 300
    assert text.endswith("Expected: a shorter one.")


def test_verbatim_text_has_no_quotation_marks():
    assert "Received: 3 of 9 bytes." in three_part("it", verbatim("3 of 9 bytes"), "9")


def test_a_record_error_names_file_and_offset():
    error = RecordError("/a/file", 12, "a record", "x", "y")
    assert (error.path, error.offset) == ("/a/file", 12)
    assert str(error).startswith("/a/file, offset 12: ")
