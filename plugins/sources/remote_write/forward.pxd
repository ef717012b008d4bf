# The C types of forward.py, for Cython; the directives, which have every index checked, are in setup.py.
cimport cython
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

cdef list _HEADS
cdef bint _COMPILED
cdef Py_ssize_t _LOOKS_BEHIND_KNOWN, _LOOK_EVERY
cdef int SERIES_TAG, LABEL_TAG, SAMPLE_TAG, VALUE_TAG, TIMESTAMP_TAG
cdef uint64_t _SIGNATURE_BITS
cdef Py_ssize_t _ENTRY_BYTES, _MEMO_ENTRIES, _MEMO_ITEM_BYTES, _LARGEST_ENTRY_BYTES


@cython.final
cdef class LabelSet:
    cdef public bytes received, forwarded
    cdef public tuple copies, keys
    cdef public str reason
    cdef public object pod
    cdef public bytes pod_labels, workload_labels
    cdef public Py_ssize_t epoch, pod_at, workload_at
    cdef public int negative
    cdef public bint is_stored
    cdef LabelSet next

    @cython.locals(rest=Py_ssize_t)
    cdef bint matches(self, Py_ssize_t epoch, bytes body, Py_ssize_t start, Py_ssize_t stop) except -1


@cython.final
cdef class Output:
    cdef public bytearray buffer
    cdef public Py_ssize_t size

    @cython.locals(end=Py_ssize_t, source="const char*", target="char*")
    cpdef Py_ssize_t append_bytes(self, bytes data, Py_ssize_t start, Py_ssize_t stop) except -1
    cdef append_series(self, bytes labels, bytes data, Py_ssize_t start, Py_ssize_t stop)
    @cython.locals(pod_at=Py_ssize_t, workload_at=Py_ssize_t)
    cdef append_attached(self, LabelSet entry, bytes data, Py_ssize_t start, Py_ssize_t stop)
    @cython.locals(head=bytes)
    cdef append_head(self, Py_ssize_t size)


@cython.final
cdef class LabelSets:
    cdef object _enricher, _clock
    cdef Py_ssize_t _limit, _limit_bytes, _bytes, epoch
    cdef double _clear_seconds, _cleared_at
    cdef dict _entries, _layouts, _pod_labels
    cdef set _once
    cdef tuple _last_layout
    cdef LabelSet placed
    cdef bytes _telling
    cdef Py_ssize_t name_from, name_to
    cdef public Py_ssize_t looks

    @cython.locals(stored=LabelSet, rest=Py_ssize_t, block=bytes)
    cdef LabelSet find(self, bytes body, Py_ssize_t start, Py_ssize_t stop)
    @cython.locals(entry=LabelSet, size=Py_ssize_t)
    cdef LabelSet _remember_entry(self, bytes block)
    @cython.locals(placed=LabelSet, entry=LabelSet)
    cdef LabelSet _make_entry(self, bytes block)
    @cython.locals(entry=LabelSet)
    cdef _clear(self)
    @cython.locals(number=Py_ssize_t)
    cdef bint _came_before(self, bytes block) except -1
    @cython.locals(rest=Py_ssize_t, layout=tuple)
    cdef Py_ssize_t place_labels(self, bytes body, Py_ssize_t start, Py_ssize_t stop) except -2
    @cython.locals(place=Py_ssize_t, length=Py_ssize_t, last=Py_ssize_t, signature=uint64_t, mixed=uint64_t)
    cdef Py_ssize_t _signature(self, bytes body, Py_ssize_t start, Py_ssize_t stop) except -2
    @cython.locals(
        starts=list, tells=list, name_index=Py_ssize_t, pod_index=Py_ssize_t, workload_index=Py_ssize_t,
        pod_at=Py_ssize_t, workload_at=Py_ssize_t, telling_from=Py_ssize_t, index=Py_ssize_t, value=Py_ssize_t,
        end=Py_ssize_t, telling=bytes, start=bytes, labels_from=Py_ssize_t,
    )
    cdef Py_ssize_t _walk(self, tuple layout, bytes body, Py_ssize_t place, Py_ssize_t stop) except -2
    cdef bint watches_placed(self, bytes body) except -1
    @cython.locals(telling=bytes, placed=LabelSet, pod_labels=tuple)
    cdef _place_pod(self)


@cython.locals(
    size=Py_ssize_t, output=Output, done=Py_ssize_t, series=Py_ssize_t, samples=Py_ssize_t, unattached=Py_ssize_t,
    known=Py_ssize_t, looks=Py_ssize_t, start=Py_ssize_t, stop=Py_ssize_t, rest=Py_ssize_t,
    found=Py_ssize_t, entry=LabelSet, previous=LabelSet,
)
cpdef Py_ssize_t forward(
    bytes body, Py_ssize_t place, Py_ssize_t count, LabelSets table, object parser, object batch
) except -1
@cython.locals(found=Py_ssize_t, labels=bytes)
cdef Py_ssize_t _forward_by(
    LabelSet entry, LabelSets table, bytes body, Py_ssize_t place, Py_ssize_t start, Py_ssize_t rest, Py_ssize_t stop,
    Output output,
) except -1
cdef Py_ssize_t _check(bytes data, Py_ssize_t start, Py_ssize_t stop) except -1
@cython.locals(pointer="const char*")
cdef bytes _slice(bytes data, Py_ssize_t start, Py_ssize_t stop)
@cython.locals(pointer="const unsigned char*", bits=int, place=Py_ssize_t)
cdef bint _is_ascii(bytes data, Py_ssize_t start, Py_ssize_t stop) except -1
@cython.locals(end=Py_ssize_t)
cdef Py_ssize_t _after_length(bytes body, Py_ssize_t place, Py_ssize_t size) except -2
@cython.locals(length=Py_ssize_t)
cdef Py_ssize_t _length(bytes body, Py_ssize_t place, Py_ssize_t after) except -1
@cython.locals(start=Py_ssize_t)
cdef Py_ssize_t _end_of_labels(bytes body, Py_ssize_t place, Py_ssize_t stop) except -2
@cython.locals(count=Py_ssize_t, end=Py_ssize_t, sign=Py_ssize_t)
cdef Py_ssize_t _usual_samples(bytes body, Py_ssize_t place, Py_ssize_t stop) except? -1
