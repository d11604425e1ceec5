"""Tool calls through LangChain: one request a line on standard input, its calls a line on output.

python langchain_calls.py http://127.0.0.1:8080/v1 auto
"""

import json
import sys

from langchain_openai import ChatOpenAI


def answer(model, row, choice):
    """Return the calls that the model makes for a request."""
    tools = [{"type": "function", "function": one} for one in row["functions"]]
    bound = model.bind_tools(tools, tool_choice="any" if choice == "required" else "auto")
    reply = bound.invoke([("system", row["system"]), ("user", row["request"])])
    return [[call["name"], json.dumps(call["args"])] for call in reply.tool_calls]


def main():
    url, choice = sys.argv[1:]
    model = ChatOpenAI(
        base_url=url,
        api_key="none",
        model="small",
        temperature=0,
        max_tokens=256,
        timeout=300,
        max_retries=0,
    )
    for line in sys.stdin:
        try:
            made = {"calls": answer(model, json.loads(line), choice)}
        except Exception as error:  # noqa: BLE001  what the framework raises is its answer
            made = {"calls": [], "error": f"{type(error).__name__}: {error}"[:200]}
        sys.stdout.write(json.dumps(made) + "\n")
        sys.stdout.flush()


main()
