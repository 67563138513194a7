"""One model of any provider, through pydantic-ai, which the modules call *the library*.

Words: *Native* tools are offered to a model as functions in the form of its provider. A *structured* answer is the JSON
text of the whole solution. *Thoughts* are text that a model writes for itself before its answer. A *fault* is an error
of the provider. *Pieces* are the parts of an answer as it comes.

model         a model of a provider: sends a request and yields the pieces of the answer, its usage, cost and faults
client        opens the model object of the library: import, key, HTTP client, most bytes of an answer
settings      options of a model, its settings for the library, and which of them the model does not accept
messages      turns requests into messages of the library, and events of the library into pieces
native_tools  offers tools as native functions and reads the calls back
"""

from planning.llm.provider.messages import Mode
from planning.llm.provider.model import ProviderModel
from planning.llm.provider.settings import ModelOptions

__all__ = ["Mode", "ModelOptions", "ProviderModel"]
