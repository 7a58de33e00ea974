"""Times one library's collective operations on the ranks of a launch: the same program for every library.

Started by a launcher as a folder, `python .../driver --backend ...`, with the Python of the library's own environment.
That has NumPy but not dlscale's other dependencies: what is imported here must need nothing else, except for the ring.
Rank 0 writes JSON lines to --output:

    {"kind": "launch", "library": ..., "thread_level": ..., ...}      first
    {"kind": "block", "operation": ..., "nanoseconds": [rank][call], ...}
    {"kind": "failure", "operation": ..., "reason": ...}
    {"kind": "choice", "operation": ..., "variant": ...}              how the ring moved messages of a size
    {"kind": "end"}                                                   last; without it the launch failed

With --turns N it shares the machine with so many launches, itself among them (`Turns`).
With --exec it only binds its rank to a CPU and becomes another program.
"""
