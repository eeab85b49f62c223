"""A model divided over devices in ways that need no Trainer: matrices, layers, activations, and what cannot be divided.

    mesh          which devices form a tensor group, a pipeline, and share one copy of the weights
    tensor        the matrices of a layer, divided over a tensor group by the model's own plan
    stages        the layers of a model, divided into the stages of a pipeline
    pipeline      micro-batches through the stages, and the whole state of a model whose stages are apart
    activations   activations computed again, or kept in the machine's memory

`sharding` one floor up shards weights, gradients and optimiser state, and has the Trainers of divided models.
"""
