"""The component classes: one for each component type of Airbyte's low-code manifests.

Spec: `declarative_component_schema.yaml` of the Airbyte CDK.
"""

from connectors.declarative.manifest.components.authenticators import *  # noqa: F403
from connectors.declarative.manifest.components.base import *  # noqa: F403
from connectors.declarative.manifest.components.cursors import *  # noqa: F403
from connectors.declarative.manifest.components.decoders import *  # noqa: F403
from connectors.declarative.manifest.components.dynamic import *  # noqa: F403
from connectors.declarative.manifest.components.errors import *  # noqa: F403
from connectors.declarative.manifest.components.pagination import *  # noqa: F403
from connectors.declarative.manifest.components.records import *  # noqa: F403
from connectors.declarative.manifest.components.requests import *  # noqa: F403
from connectors.declarative.manifest.components.source import *  # noqa: F403
from connectors.declarative.manifest.components.specification import *  # noqa: F403
from connectors.declarative.manifest.components.streams import *  # noqa: F403
