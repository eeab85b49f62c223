batch_size = 32
eval_interval = 10
