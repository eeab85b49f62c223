"""Checks of pages that paretune writes."""

import re


def has_policy(text: str) -> bool:
    """Check that a page's policy allows only scripts with its nonce. Return whether all scripts have this nonce.

    The policy must also forbid loading anything from elsewhere.
    """
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; ([^"]+)">', text)
    assert policy
    (nonce,) = re.findall(r"script-src 'nonce-([0-9a-f]{32})'", policy[1])
    assert text.index(policy[0]) < text.index("<title>") < text.index("<script")
    assert not {"'unsafe-eval'", "http", "*"} & {*policy[1].split()}
    return text.count("<script") == text.count(f'<script nonce="{nonce}"')
