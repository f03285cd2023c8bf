"""What one page may cost."""

from pydantic import Field

from gristmill.tasks.documents.step import Settings


class Limits(Settings):
    """Limits on one page. A page over one of them is dropped with the rule `page_timeout` or `page_memory`.

    The defaults leave room: of 500 pages of a crawl up to 1 MB long the slowest took 0.15 s with resiliparse and 1.9 s
    with trafilatura, and 11 MB of plain paragraphs took resiliparse 1.1 s and 0.1 GB, and trafilatura 30 s and 0.6 GB.
    Where the kernel has no limit on the address space (macOS), the zygote looks at the worker's resident memory
    ten times a second instead, so a page that allocates fast gets further than `page_memory` before it is stopped.
    """

    page_seconds: float = Field(
        20.0, gt=0, description="processor time, so that a busy machine gives the same results as an idle one"
    )
    page_wall_seconds: float = Field(
        600.0,
        gt=0,
        description="time by the clock, for a page that sleeps or waits for a lock",
    )
    page_memory: int = Field(2 << 30, gt=0, description="bytes that a page may add to the worker's memory")
    page_result: int = Field(64 << 20, gt=0, description="bytes of a page's result, which the parent has to hold")
