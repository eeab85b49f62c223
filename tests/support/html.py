"""Checks of pages that paretune writes."""

import re


def has_policy(text: str) -> bool:
    """Whether a page runs only the scripts that bear its word, and these bear it, and loads nothing."""
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; ([^"]+)">', text)
    assert policy
    (nonce,) = re.findall(r"script-src 'nonce-([0-9a-f]{32})'", policy[1])
    assert text.index(policy[0]) < text.index("<title>") < text.index("<script")
    assert not {"'unsafe-eval'", "http", "*"} & {*policy[1].split()}
    return text.count("<script") == text.count(f'<script nonce="{nonce}"')
