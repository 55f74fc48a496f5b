"""Components that are implemented in Python, by classes of modules that the user trusts.

custom = PythonComponents(config, folder)
environment = Environment(config, custom=custom)
cursors = Cursors(config, pages, custom)

Whoever names a module as trusted lets its code run: it can do all that the process can do.

Spec: the components of manifests whose types begin with Custom.
"""

from connectors.declarative.custom.python import PythonComponents

__all__ = ["PythonComponents"]
