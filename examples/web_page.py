"""A page with an agent behind a sign-in of your own: `uvicorn web_page:app`, then open it."""

import os
from pathlib import Path
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import FileResponse
from fastapi.security import HTTPBasic

from ferrule import Agent, tool
from ferrule.web import Principal, create_ag_ui_endpoint

PASSWORDS = {"ada": "lighthouse", "bo": "windmill"}  # yours are elsewhere, and hashed


@tool(side_effect="write")
def send_mail(to: str, text: str) -> str:
    """Send a mail."""
    return f"sent to {to}: {text}"


async def identify(request: Request) -> Principal | None:
    given = await HTTPBasic(auto_error=False)(request)
    known = given is not None and PASSWORDS.get(given.username) == given.password
    return Principal(given.username) if given and known else None


agent = Agent(os.environ.get("MODEL", "openai:gpt-5.2"), [send_mail])
address = os.environ.get("ADDRESS", "http://127.0.0.1:8000")
endpoint = create_ag_ui_endpoint(agent, address=address, identify=identify)
app = FastAPI(lifespan=endpoint.lifespan)
app.mount("/agent", endpoint)


@app.get("/")
def page(who: Annotated[Principal | None, Depends(identify)]) -> FileResponse:
    if who is None:
        raise HTTPException(401, headers={"www-authenticate": "Basic"})
    return FileResponse(Path(__file__).with_suffix(".html"))
