"""What a training does in other ways on a processor, where the operations made for GPUs are slow.

suiting      what of this a model gets
dropout      masks from random bytes
attention    queries x keys, softmax, x values as plain products
memory       what is freed is kept for the next step
others       how much of the processor other programs take meanwhile

None changes what is computed, but for the random numbers and rounding. benchmarks/training_throughput.py compares.
"""
