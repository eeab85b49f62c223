"""Ways of dividing a model that no GPU has tried. They build on the training, which imports none of them.

Still to be shown on GPUs:

- `tensor_parallel_degree`: losses of 2 and 4 GPUs of one instance equal to those of one, in bf16; tokens per second
  beside `fsdp` alone.
- `pipeline_parallel_degree`: the same over two instances; the idle share of the devices.
- both: a checkpoint that is stopped and resumed under NCCL, and the peak of memory beside its estimate.
"""
