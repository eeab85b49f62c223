"""Hides a warning that AWS's plug-in for MLflow causes at every request to a server whose address is not an ARN.

sagemaker-mlflow (0.5.0) takes the tracking address for an ARN, whatever it is. At an http server, MLflow then logs
"Encountered unexpected error during resolving request headers: list index out of range" several times per command, also
in the process of `mlflow run`, which does not run paretune. So this is a plug-in of MLflow itself.
"""

import logging
from typing import Any

from mlflow.tracking.request_header.abstract_request_header_provider import RequestHeaderProvider

_LOGGER = "mlflow.tracking.request_header.registry"


class QuietHeaders(RequestHeaderProvider):
    """Adds no header. MLflow creates one object of it when it is imported, which hides the warning."""

    def __init__(self) -> None:
        logging.getLogger(_LOGGER).addFilter(_is_no_arn_warning)

    def in_context(self) -> bool:
        """Return False: there is no header to add."""
        return False

    def request_headers(self) -> dict[str, Any]:
        """Return no headers."""
        return {}


def _is_no_arn_warning(record: logging.LogRecord) -> bool:
    return "list index out of range" not in record.getMessage()
