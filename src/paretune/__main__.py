"""`python -m paretune NAME --key value`, the same as `paretune NAME --key value`."""

from paretune.cli import run

if __name__ == "__main__":
    run()
