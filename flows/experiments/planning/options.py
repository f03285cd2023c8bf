"""Options of the plan of a training and of the capacity of a crawl, which functions and commands share."""

from dataclasses import dataclass

from gristmill.flows.recipe.options import option
from gristmill.training.hardware import DEVICE_HOURS, MFU

# Pages of the crawl of December 2024, CC-MAIN-2024-51, as Common Crawl has published it:
# https://commoncrawl.org/blog/december-2024-crawl-archive-now-available
SNAPSHOT_PAGES = 2_640_000_000
SHARD_PAGES = SNAPSHOT_PAGES // 90_000  # of each of its WARC files
NETWORK = 400.0  # Gbit/s of a device to other machines: one adapter of NDR InfiniBand each, as in NVIDIA's DGX H100


@dataclass(frozen=True)
class CrawlOptions:
    """A whole crawl, the machines that work on it, and prices in one currency."""

    pages: int = option("pages of the crawl, as in CC-MAIN-2024-51", SNAPSHOT_PAGES, min=1)
    shard_pages: int = option("pages of a file of the crawl", SHARD_PAGES, min=1)
    machines: int = option("number of machines", 1, min=1)
    cores: int = option("cores of a machine", 1000, min=1)
    memory: float | None = option("memory of a machine in GB; default: as required", None, min=0)
    core_hour: float = option("price of a core hour", 0.0, min=0)
    terabyte_month: float = option("price of a terabyte month in the home", 0.0, min=0)
    million_requests: float = option("price of a million requests to the store", 0.0, min=0)

    @property
    def memory_bytes(self) -> int | None:
        """Of a machine; None: as much as jobs need."""
        return None if self.memory is None else round(self.memory * 1e9)


@dataclass(frozen=True)
class TrainingOptions:
    """The devices of a training, what they cost, and what the plan assumes."""

    device: str = option("GPU: h100, h200, b200, a100 or mi300x", "h100", metavar="NAME")
    devices: int = option("number of GPUs", 8, min=1)
    machine_devices: int = option("GPUs of a machine", 8, min=1)
    network: float = option("network rate of a GPU in Gbit/s", NETWORK, min=0)
    mfu: float = option("share of the peak rate that training reaches", MFU)
    device_memory: float | None = option("memory of a GPU in GB; default: as in its data sheet", None, min=0)
    price: float = option("price of a GPU hour", 0.0, min=0)
    failure_hours: float = option("GPU hours between failures, as for Llama 3", float(round(DEVICE_HOURS)), min=0)
    tensor: int = option("maximum number of GPUs that divide each matrix", 1, min=1)
    pipeline: int = option("maximum number of pipeline stages", 1, min=1)
    corpus_tokens: float | None = option("unique tokens of the corpus; default: as in the finished run", None, min=1)
    served: float | None = option("tokens to generate in service, for the inference-aware law", None, min=1)
    law: str | None = option("file of a law by `decide scale`; default: law in the home", None, metavar="FILE")


@dataclass(frozen=True)
class PlanOptions(CrawlOptions, TrainingOptions):
    """A training, and the crawl that its corpus is made of."""
