"""One logging interval and one validation, in the form that files and pages get them."""

from transduce.training.metrics import DevMetrics, TrainMetrics

TRAIN = TrainMetrics(
    step=1200,
    epoch=0.37,
    loss=3.412,
    plain=3.0587,
    rate=0.0007,
    norm=0.84,
    tokens=4_123_456,
    tokens_per_second=412_345.6,
    peak_share=0.27,
    padding_saved=0.41,
    seconds=61.5,
)
DEV = DevMetrics(
    step=1200, loss=3.201, plain=1.893, bleu=21.43, signature="nrefs:1|case:mixed", seconds=61.5, best=True
)
