"""Pages in a process of their own: one that loops, explodes or crashes its parser costs itself and nothing else.

    from gristmill.tasks.guard.parent import Limits
    from gristmill.tasks.guard.parent import Guard

    with Guard("gristmill.tasks.extraction.page:extract_page", Limits()) as guard:
        for result in guard.map((payload, charset) for ...):   # in order; {"rule": ..., "detail": ...} for a lost page

Three processes take part. The *parent* (a Dask worker, say) has the pages. The *zygote*, started by the first guard
of the parent, imports the function and forks. A *worker*, one for each guard, works pages off; when it dies, the next
one costs a fork (about 20 ms) instead of all imports (about 1 s). The zygote has a single thread, so it may fork; the
parent, full of threads, may not.

    parent ──fork, please (socket)──▶ zygote ──fork──▶ worker
    parent ──calls (shared memory), where they lie (pipe)──▶ worker
    parent ◀─results (pipe)── worker
    parent ◀─how the worker ended (pipe)── zygote

The limits are the kernel's: a page's processor time and wall-clock time are timers whose signals kill the
worker, in whichever loop of C it is stuck, and its memory is a limit on the address space. So nobody has to watch.
"""
