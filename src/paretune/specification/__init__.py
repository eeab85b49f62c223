"""The specification of a job, and the documents that travel into it; standard library only.

job          JobSpec                 one training on one cluster: all sections below, rules between them, hash, command
inputs       Model, Data             sections: the model to start from and the data set; missing files
batch_size   Batch, plan_batch       section: batch size, learning rate, epochs; the batch plan that follows
fine_tuning  FineTuning              section: precision, which weights, adapters, compiler, training arguments
program      Program                 section: a training script or project of the user's own
placement    Placement               the four sections below together, and the rules between them
parallelism  Parallelism             section: strategy and degrees; ParallelDegrees
cluster      Cluster, Simulation     section: instances, processes, launcher and the settings of the simulated one
limits       Limits                  section: time, money, capacity
account      AccountSettings         section: AWS account, image, storage, network, owner
parameters   parameter, affecting    fields with help, rules and effects; values from and to text
catalog      Instance, instances     SageMaker's training instances
regions      usual_region            AWS regions that have SageMaker
profile      read_profile            defaults of a team, from paretune.toml
container    JobDocument, JobReport  documents and files that launcher and training exchange
metrics      F1, COST_USD, ...       names and units of what is recorded; formulas
"""
