"""How families of models write tool calls into text, and a reader that finds them (`Reader`).

`for_model(name)` gives the dialects of a model, best first; `ALL` is every dialect, for reading by
detection.

Modules: `brackets`, `call_shapes`, `dialect`, `fences`, `functionary`, `gemma`, `harmony`,
`lenient_json`, `markup`, `mistral`, `prose`, `pythonic`, `reader`, `reasoning`, `regions`,
`registry`, `section_tokens`, `tagged_calls`.
"""

from __future__ import annotations

from .dialect import Dialect as Dialect
from .reader import Reader as Reader
from .reader import Reading as Reading
from .registry import ALL as ALL
from .registry import FENCED as FENCED
from .registry import for_model as for_model
from .registry import starts_thinking as starts_thinking
