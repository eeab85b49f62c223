"""paretune: which SageMaker cluster, batch size and learning rate should I pay for?"""

__version__ = "0.1.0"
