"""What Gristmill calls of fastText's module (python/fasttext_module/fasttext/pybind/fasttext_pybind.cc)."""

import numpy as np

class model_name:
    supervised: model_name

class loss_name:
    hs: loss_name
    ns: loss_name
    softmax: loss_name
    ova: loss_name

class args:
    input: str
    lr: float
    dim: int
    minCount: int
    minn: int
    maxn: int
    wordNgrams: int
    bucket: int
    thread: int
    model: model_name
    loss: loss_name

class DenseMatrix: ...

class fasttext:
    def loadModel(self, path: str) -> None: ...
    def saveModel(self, path: str) -> None: ...
    def getLabels(self, on_unicode_error: str) -> tuple[list[str], list[int]]: ...
    def getOutputMatrix(self) -> DenseMatrix: ...
    def multilinePredict(
        self, lines: list[str], k: int, threshold: float, on_unicode_error: str
    ) -> tuple[list[list[str]], list[np.ndarray]]: ...

def train(model: fasttext, args: args) -> None: ...
