# The C types of forward.py, for Cython; the directives, which have every index checked, are in setup.py.
cimport cython
from libc.stdint cimport uint64_t

cdef list _HEADS
cdef int SERIES_TAG, LABEL_TAG, SAMPLE_TAG, VALUE_TAG, TIMESTAMP_TAG
cdef uint64_t _SIGNATURE_BITS
cdef Py_ssize_t _ENTRY_BYTES, _MEMO_ENTRIES, _MEMO_ITEM_BYTES, _LARGEST_ENTRY_BYTES


cdef class LabelSet:
    cdef public bytes received, forwarded
    cdef public tuple copies, keys
    cdef public str reason
    cdef public object pod
    cdef public Py_ssize_t epoch, place
    cdef public bint negative


cdef class LabelSets:
    cdef object _enricher, _clock
    cdef Py_ssize_t _limit, _limit_bytes, _bytes, _marked, _epoch
    cdef double _clear_seconds, _cleared_at
    cdef dict _entries, _layouts, _pod_labels, _watched
    cdef list _order
    cdef bytearray _marks

    @cython.locals(entry=LabelSet, stored=LabelSet)
    cdef LabelSet find_or_make(self, bytes block)
    @cython.locals(size=Py_ssize_t)
    cdef _store(self, LabelSet entry)
    cdef _clear(self)
    @cython.locals(number=Py_ssize_t, place=Py_ssize_t, marks=int)
    cdef bint _came_before(self, bytes block) except -1
    @cython.locals(
        size=Py_ssize_t, place=Py_ssize_t, length=Py_ssize_t, last=Py_ssize_t, signature=uint64_t, mixed=uint64_t
    )
    cdef long long _signature(self, bytes block) except -2
    @cython.locals(
        layout=tuple, starts=list, tells=list, name_index=Py_ssize_t, pod_index=Py_ssize_t, workload_index=Py_ssize_t,
        size=Py_ssize_t, place=Py_ssize_t, stop=Py_ssize_t, pod_at=Py_ssize_t, workload_at=Py_ssize_t, index=Py_ssize_t,
        telling_from=Py_ssize_t, telling=bytes, name=bytes, start=bytes, value=Py_ssize_t, entry=LabelSet,
        pod_labels=bytes, workload_labels=bytes, keys=tuple, before=bytes, between=bytes, after=bytes,
    )
    cdef LabelSet _make_by_layout(self, bytes block)
    @cython.locals(pod_labels=tuple)
    cdef tuple _pod_labels_by(self, bytes telling)
    cdef bint _watches(self, bytes name) except -1


@cython.locals(
    size=Py_ssize_t, pieces=list, done=Py_ssize_t, series=Py_ssize_t, samples=Py_ssize_t, unattached=Py_ssize_t,
    known=Py_ssize_t, expected=Py_ssize_t, copied_from=Py_ssize_t, start=Py_ssize_t, stop=Py_ssize_t, rest=Py_ssize_t,
    found=Py_ssize_t, entry=LabelSet, sample=bytes, labels=bytes,
)
cpdef Py_ssize_t forward(
    bytes body, Py_ssize_t place, Py_ssize_t count, LabelSets table, object parser, object batch
) except -1
@cython.locals(pointer="const char*")
cdef bytes _slice(bytes data, Py_ssize_t start, Py_ssize_t stop)
cdef bytes _head(Py_ssize_t size)
@cython.locals(end=Py_ssize_t)
cdef Py_ssize_t _after_length(bytes body, Py_ssize_t place, Py_ssize_t size) except -2
@cython.locals(length=Py_ssize_t)
cdef Py_ssize_t _length(bytes body, Py_ssize_t place, Py_ssize_t after) except -1
@cython.locals(start=Py_ssize_t)
cdef Py_ssize_t _end_of_labels(bytes body, Py_ssize_t place, Py_ssize_t stop) except -2
@cython.locals(count=Py_ssize_t, end=Py_ssize_t)
cdef Py_ssize_t _usual_samples(bytes body, Py_ssize_t place, Py_ssize_t stop, bint negative) except -1
