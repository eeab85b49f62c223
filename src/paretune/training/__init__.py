"""The training wing: the only code that imports torch. It knows no cloud and no study.

It meets the launching wing in plain values only: the folder and the JSON formats of `paretune.spec.container`.
"""
