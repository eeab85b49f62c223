"""An Optuna sampler for fine-tuning jobs: seconds from short probes, quality from the cheapest cluster that fits."""
