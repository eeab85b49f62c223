#!/bin/bash
accelerate launch --cpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no \
  train.py --output_dir out --per_device_train_batch_size 16 "$@"
