"""The component classes: one for each component type of Airbyte's low-code manifests.

Spec: `declarative_component_schema.yaml` of the Airbyte CDK.
"""

from connectors.declarative.manifest.components.base import *  # noqa: F403
from connectors.declarative.manifest.components.requests import *  # noqa: F403
from connectors.declarative.manifest.components.source import *  # noqa: F403
from connectors.declarative.manifest.components.streams import *  # noqa: F403
