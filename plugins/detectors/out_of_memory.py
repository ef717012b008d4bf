"""Memory that was not enough, as every allocator, runtime, kernel and scheduler says it.

These lines name no framework. Each pattern's words are those that stand on the line whatever its prefix.
"""

from __future__ import annotations

from collections.abc import Sequence

from lens_core import Detector, EventPattern, hookimpl


def _out_of_memory(words: Sequence[str], pattern: str) -> EventPattern:
    return EventPattern(type="out_of_memory", words=words, pattern=pattern)


_DEVICE = (
    _out_of_memory(
        ("out", "of", "memory", "tried", "allocate"),
        r"(?P<reason>(?:(?:CUDA|HIP|XPU|NPU|M(?:USA|PS backend)) )?out of memory)\b"
        r"(?:\.| \([^)]{0,80}\)\.) Tried to allocate (?P<wanted>[\d.]+ \w+)",
    ),
    _out_of_memory(
        ("error", "out", "of", "memory"),
        r"(?P<reason>(?:CUDA|HIP)(?: runtime)? error:? ?(?:\(\d+\) :)? ?out of memory)",
    ),
    _out_of_memory(
        ("cuda", "failure", "out", "of", "memory"), r"(?P<reason>(?:Cuda|HIP) failure (?:\d+ )?'?out of memory'?)"
    ),
    _out_of_memory(("hiperroroutofmemory",), r"\b(?P<reason>hipErrorOutOfMemory)\b"),
    _out_of_memory(("cudaerrormemoryallocation",), r"\b(?P<reason>cudaErrorMemoryAllocation)\b"),
    _out_of_memory(("cuda_error_out_of_memory",), r"\b(?P<reason>CUDA_ERROR_OUT_OF_MEMORY)\b"),
    _out_of_memory(("cublas_status_alloc_failed",), r"\b(?P<reason>CUBLAS_STATUS_ALLOC_FAILED)\b"),
    _out_of_memory(("allocation", "on", "device"), r"OutOfMemoryError: (?P<reason>Allocation on device)"),
    _out_of_memory(("resource_exhausted", "out", "of", "memory"), r"(?P<reason>RESOURCE_EXHAUSTED: Out of memory)"),
    _out_of_memory(
        ("resource_exhausted", "ran", "out", "memory"), r"(?P<reason>RESOURCE_EXHAUSTED: .*?Ran out of memory)"
    ),
    _out_of_memory(
        ("resource_exhausted", "attempting", "to", "allocate"),
        r"(?P<reason>RESOURCE_EXHAUSTED: (?:Error \w+ program: )?Attempting to (?:allocate|reserve))"
        r" (?P<wanted>[\d.]+\w?)",
    ),
    _out_of_memory(
        ("resource_exhausted", "failed", "to", "allocate"), r"(?P<reason>RESOURCE_EXHAUSTED: Failed to allocate)"
    ),
    _out_of_memory(("oom", "when", "allocating", "tensor"), r"(?P<reason>OOM when allocating tensor)"),
)
_HOST = (
    _out_of_memory(
        ("out", "of", "memory", "killed", "process"), r"(?P<reason>Out of memory: Kill(?:ed)? process) (?P<pid>\d+)"
    ),
    _out_of_memory(("cgroup", "out", "of", "memory"), r"(?P<reason>Memory cgroup out of memory)"),
    _out_of_memory(("killed", "by", "oom", "killer"), r"(?P<reason>killed by (?:SIGKILL by )?(?:the )?OOM killer)"),
    _out_of_memory(("oom", "kill", "event"), r"(?P<reason>oom-kill event)"),
    _out_of_memory(("oom", "kill", "constraint"), r"(?P<reason>oom-kill:constraint=\w+)"),
    _out_of_memory(("oom_kill",), r"(?P<reason>oom_kill event)"),
    _out_of_memory(("oomkilled",), r"\b(?P<reason>OOMKilled)\b"),
    _out_of_memory(("srun", "error", "out", "of", "memory"), r"srun: error: .*(?P<reason>Out Of Memory)\s*$"),
    _out_of_memory(("node", "was", "low", "resource", "memory"), r"(?P<reason>node was low on resource: memory)"),
    _out_of_memory(
        ("killed", "due", "memory", "pressure", "oom"), r"(?P<reason>killed due to memory pressure \(OOM\))"
    ),
    _out_of_memory(("ray", "exceptions", "outofmemoryerror"), r"(?P<reason>ray\.exceptions\.OutOfMemoryError)"),
    _out_of_memory(("raytaskerror", "outofmemoryerror"), r"(?P<reason>RayTaskError\(OutOfMemoryError\))"),
    _out_of_memory(
        ("defaultcpuallocator", "memory"), r"(?P<reason>DefaultCPUAllocator: (?:not enough|can't allocate) memory)"
    ),
    _out_of_memory(
        ("_arraymemoryerror", "unable", "to", "allocate"),
        r"(?P<reason>_ArrayMemoryError): Unable to allocate (?P<wanted>[\d.]+ \w+)",
    ),
    _out_of_memory(
        ("memoryerror",), r"^(?:.{0,400}?(?:[\])>:|]|ERROR|INFO)\s{0,8})?(?P<reason>MemoryError)(?:: |\s*$)"
    ),
    _out_of_memory(("errno", "cannot", "allocate", "memory"), r"(?P<reason>\[Errno 12\] Cannot allocate memory)"),
)


class OutOfMemory(Detector):
    """Device and host memory that ran out, whoever says so."""

    name = "out_of_memory"
    layer = ""
    events = (*_DEVICE, *_HOST)


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [OutOfMemory]
