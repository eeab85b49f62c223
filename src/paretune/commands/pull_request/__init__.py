"""The comment on a pull request, which the GitHub action in `action.yml` writes. It is no word after `paretune`.

comment  compares the job of the branch with that of the main branch
"""
