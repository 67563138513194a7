"""One model of any provider, through pydantic-ai.

model         asks it: the pieces of an answer, and what it took
faults        what went wrong, as errors of the closed kinds
client        opens it: the library, the key, the client and its bounds
settings      its settings in the words of the library, and those that it does not take
prices        what it took, and what that costs
messages      requests in the words of the library, and its events read
native_tools  offers tools as native functions and reads the calls back
"""

from planning.llm.provider.messages import Mode
from planning.llm.provider.model import ProviderModel

__all__ = ["Mode", "ProviderModel"]
