"""HTML pages: templates that share one style and the macros for tables and lists."""

from functools import cache

import jinja2
from markupsafe import Markup

from paretune.core.untrusted import printable


def _printable(value: object) -> object:
    """The value as a page shows it: texts, which others may have chosen, lose characters that turn or hide text."""
    if isinstance(value, Markup):
        return Markup(printable(value))  # noqa: S704  # from our own templates and pictures, with texts escaped
    return printable(value) if isinstance(value, str) else value


@cache
def template(package: str, name: str) -> jinja2.Template:
    """The template `name` of a package; it may include `style.css` and import `macros.html` of this one."""
    return jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(folder, "") for folder in (package, "paretune.presentation")]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_printable,
    ).get_template(name)
