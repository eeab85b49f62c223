#!/bin/sh
python main.py fit --config config.yaml "$@"
