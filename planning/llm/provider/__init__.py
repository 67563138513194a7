"""One model of any provider, through pydantic-ai.

model         a model of a provider: sends a request and yields the pieces of the answer
faults        turns exceptions and failed answers into a `ProviderError`
client        makes the model of the library: import, key, client and its bounds
settings      settings of a model for the library, and which of them the model does not take
prices        usage and costs of a request
messages      turns requests into messages of the library, and its events into pieces
native_tools  offers tools as native functions and reads the calls back
"""

from planning.llm.provider.messages import Mode
from planning.llm.provider.model import ProviderModel

__all__ = ["Mode", "ProviderModel"]
