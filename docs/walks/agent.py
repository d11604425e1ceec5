"""From `Agent.run` to the tool and back

An agent with one tool and a scripted model that calls it once and then answers. The first run:
"""

from __future__ import annotations

from tracing import Tracer

from ferrule import Agent, Storage, tool
from ferrule.models.scripted import Scripted, calls, says

STEPS = """
engine/agent.py Agent.run
engine/agent.py Agent.session
engine/session_builder.py build_session
engine/session.py Session.run
engine/driver.py Driver.run
engine/driver.py Driver.feed
core/machine.py Machine._on_run_started
engine/session_log.py SessionLog.add
engine/driver.py Driver._drive
engine/driver.py Driver._ask_exchange
engine/session_log.py SessionLog.flush_together
storage/journal/sqlite.py SqliteJournal.append
engine/model_layers.py stack_layers
models/tool_modes/selection.py open_exchange
models/scripted.py ScriptedExchange.ask
core/machine.py Machine._on_model_answered
engine/dispatcher.py Dispatcher.evaluate
engine/dispatcher.py parse_arguments
tools/plain_schemas.py PlainArguments.check
permissions/rule_evaluation.py PermissionGate.decide
core/machine.py Machine._on_call_evaluated
engine/driver.py Driver._run_tool
engine/dispatcher.py Dispatcher.execute
engine/timeouts_and_retries.py run_with_policy
engine/threads.py Threads.run
walks/agent.py count_stock
engine/result_bounds.py bound_text
core/machine.py Machine._on_tool_answered
engine/driver.py Driver._ask_exchange
core/machine.py Machine._on_model_answered
core/call_states.py conclude_run
engine/driver.py Driver._finish
engine/session.py Session.build_result
engine/session.py Session.close
"""


@tool
def count_stock(item: str) -> int:
    """Count the pieces of an item in the shop."""
    return len(item)


async def execute(tracer: Tracer) -> None:
    """Run an agent twice, with one call each time."""
    steps = [calls(("count_stock", {"item": "apple"})), says("There are 5.")]
    agent = Agent(Scripted([*steps, *steps]), [count_stock], storage=Storage(journal=":memory:"))
    for name in ("first", "second"):
        with tracer.record(name):
            result = await agent.run("How many apples are there?")
        assert result.text == "There are 5." and result.results[0].data == 5
    await agent.close()
