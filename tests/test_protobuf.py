"""Messages are those of Google's own library, to the byte."""

import pytest
from google.protobuf.wrappers_pb2 import BytesValue, DoubleValue, FloatValue, UInt64Value
from hypothesis import assume, given
from hypothesis import strategies as st
from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

from transduce.protobuf import Field, bytes_field, double_field, read_fields, single_field, whole_field

NUMBERS, SINGLES = st.floats(allow_nan=False), st.floats(allow_nan=False, width=32)
FIELDS = st.one_of(
    st.builds(whole_field, st.integers(1, 5000), st.integers(0, 2**64 - 1)),
    st.builds(bytes_field, st.integers(1, 5000), st.binary(max_size=300)),
    st.builds(single_field, st.integers(1, 5000), SINGLES),
    st.builds(double_field, st.integers(1, 5000), NUMBERS),
)


@given(st.integers(1, 2**64 - 1), st.binary(min_size=1, max_size=300), NUMBERS, SINGLES)
def test_fields_are_those_of_the_library(whole: int, raw: bytes, double: float, single: float):
    assume(double and single)  # the library leaves out a zero
    assert whole_field(1, whole) == UInt64Value(value=whole).SerializeToString()
    assert bytes_field(1, raw) == BytesValue(value=raw).SerializeToString()
    assert double_field(1, double) == DoubleValue(value=double).SerializeToString()
    assert single_field(1, single) == FloatValue(value=single).SerializeToString()


def test_the_library_reads_a_message_in_a_message():
    message = bytes_field(1, bytes_field(1, "Größe".encode()) + single_field(2, 0.5))
    found = Summary.FromString(message)
    assert [(value.tag, value.simple_value) for value in found.value] == [("Größe", 0.5)]
    assert [(field.number, field.raw) for field in read_fields(message)] == [(1, message)]


def test_a_number_too_large_for_single_precision_is_infinite():
    assert single_field(3, 1e300) == single_field(3, float("inf"))


@given(st.lists(FIELDS))
def test_what_is_read_is_what_was_written(fields: list[bytes]):
    assert [field.raw for field in read_fields(b"".join(fields))] == fields


def test_values_are_read():
    message = whole_field(16, 300) + bytes_field(2, b"text") + single_field(7, 1.0)
    assert [field[:2] for field in read_fields(message)] == [(16, 300), (2, b"text"), (7, b"\x00\x00\x80?")]
    assert list(read_fields(b"")) == []
    assert next(read_fields(b"\x08\x01")) == Field(1, 1, b"\x08\x01")


@pytest.mark.parametrize(
    ("message", "wrong"),
    [
        (b"\x0b", "field of kind 3"),  # a group, which is no longer used
        (b"\x0a\x05text", "it ends too early"),
        (b"\x09\x00\x00", "it ends too early"),
        (b"\x08" + b"\xff" * 11, "an unterminated number"),
    ],
)
def test_what_is_no_message_is_refused(message: bytes, wrong: str):
    with pytest.raises(ValueError, match=wrong):
        list(read_fields(message))


@given(st.lists(FIELDS, min_size=1), st.data())
def test_a_message_cut_short_loses_only_its_end(fields: list[bytes], data: st.DataObject):
    whole = b"".join(fields)
    cut = data.draw(st.integers(0, len(whole) - 1))
    found: list[bytes] = []
    try:
        found += (field.raw for field in read_fields(whole[:cut]))
    except (ValueError, IndexError):
        assert cut not in {len(b"".join(fields[:many])) for many in range(len(fields))}
    else:
        assert b"".join(found) == whole[:cut]
