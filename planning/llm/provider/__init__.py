"""One model of any provider, through pydantic-ai.

model         asks it: the pieces of an answer, what it took, what went wrong
client        opens it: the library, the key, the client and its bounds
messages      requests in the words of the library, and its events read
native_tools  offers tools as native functions and reads the calls back
"""

from planning.llm.provider.model import Mode, ProviderModel

__all__ = ["Mode", "ProviderModel"]
