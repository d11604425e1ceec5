"""Check the answers of a session against its output type: the driver's part of typed answers."""

from __future__ import annotations

from typing import Any, cast

from ferrule.core.calls import encode_json, parse_json
from ferrule.core.errors import ConfigError
from ferrule.core.events import OutputChecked
from ferrule.core.output import OUTPUT_RETRIES, OutputRequest
from ferrule.core.value_class import frozen
from ferrule.models.client import OutputModeOption
from ferrule.models.output_modes import OutputFormat, check_output_mode
from ferrule.tools.context import Context

from .json_answer import find_json
from .output_type import OutputType, SchemaType, parse_output_type


@frozen
class AgentOutput:
    """The output that every run of an agent ends with.

    Attributes:
        type: Its type.
        mode: How the model is held to it (`models.output_modes`).
        retries: How often an answer that does not fit goes back to the model.
    """

    type: OutputType
    mode: OutputModeOption = "auto"
    retries: int = OUTPUT_RETRIES

    @property
    def format(self) -> OutputFormat:
        """What the model is told of it."""
        return OutputFormat(
            self.type.schema, self.type.schema_json, self.mode, self.type.takes_text
        )

    @property
    def request(self) -> OutputRequest:
        """What the machine is told of it."""
        return OutputRequest(self.type.schema_json, self.retries)


def create_output(given: object, mode: OutputModeOption, retries: int) -> AgentOutput | None:
    """Return the output of an agent; None for text. Raises ConfigError."""
    check_output_mode(mode)
    if type(retries) is not int or retries < 0:
        raise ConfigError(f"output_retries = {retries!r}: must be a whole number, at least 0")
    parsed = parse_output_type(given)
    return None if parsed is None else AgentOutput(parsed, mode, retries)


class OutputCheck:
    """The check of one session. It keeps the value of the last answer that fitted."""

    def __init__(self, output: OutputType, request: OutputRequest | None = None) -> None:
        self.output = output
        self.request = request or OutputRequest(output.schema_json)
        self.value: Any = None
        self.error: Exception | None = None
        """What an output function raised."""
        self.repairs: tuple[str, ...] = ()

    @classmethod
    def of_request(cls, request: OutputRequest) -> OutputCheck:
        """Return the check of a run whose type is not here: by the schema that was recorded."""
        schema = cast("dict[str, Any]", parse_json(request.schema))
        return cls(SchemaType(schema), request)

    def restore(self, text: str, context: Context[Any]) -> None:
        """Take the value of a run that has ended from its text; no function runs again."""
        if self.output.has_effects:
            self.value = parse_json(text)
            return
        found = find_json(text, lists=self.output.is_wrapped)
        if found.is_text:
            checked = self.output.read_text(found.text, found.problem, context)
        else:
            checked = self.output.read(found, context)
        self.value = checked.value

    async def run(self, answer: str, context: Context[Any]) -> OutputChecked:
        """Check an answer. The value is kept in `value`."""
        self.error = None
        try:
            checked = await self.output.check(answer, context)
        except Exception as error:  # noqa: BLE001  boundary: somebody's function; `run` raises from it
            self.error = error
            name = type(error).__name__
            return OutputChecked(
                problems=(f"the output function failed: {name}: {error}",), final=True
            )
        self.repairs = checked.repairs
        if checked.problems:
            return OutputChecked(problems=checked.problems, final=checked.final)
        self.value = checked.value
        return OutputChecked(checked.json or encode_json(None))
