"""A model divided over devices: weights, matrices and layers, and why some models cannot be divided.

sharding    weights, gradients and optimiser state sharded over processes, and the Trainers of divided models
tensor      the matrices of a layer, divided over a tensor group by the model's own plan
pipeline    the layers of a model, divided into the stages of a pipeline, and micro-batches through them
"""
