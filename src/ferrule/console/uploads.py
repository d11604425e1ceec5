"""Files that a person sends with a message: pictures, sounds and documents, known by their content.

They come as parts of a form (multipart), which htmx sends. Each is checked before a run begins, so
that what cannot be given to a model is a message on the page and nothing in the journal.
"""

from __future__ import annotations

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request

from ferrule.core.media import Content, Media
from ferrule.engine.threads import run_blocking
from ferrule.runtime.http.http_security import MAX_BODY
from ferrule.tools.media_types import MAX_BYTES, detect_type

MAX_FILES = 8
"""Files of one message."""
MAX_UPLOAD = MAX_BYTES + MAX_BODY
"""Bytes of a form with files."""
UPLOAD_ENDINGS = ("/say", "/playground")
"""How the paths of forms with files end."""


def find_body_limit(path: str) -> int:
    """Return the most bytes that the body of a request to this path may have."""
    return MAX_UPLOAD if path.endswith(UPLOAD_ENDINGS) else MAX_BODY


async def read_form(request: Request) -> tuple[FormData, Content]:
    """Return a form and its message: the field `text`, and the files of `files`.

    Raises:
        MediaInvalid: A file is nothing that models take.
    """
    async with request.form(max_files=MAX_FILES) as form:
        text = str(form.get("text", ""))
        files = [one for one in form.getlist("files") if isinstance(one, UploadFile)]
        media = [await _read_file(one) for one in files if one.filename]
    return form, [text.strip(), *media] if media else text


async def _read_file(file: UploadFile) -> Media:
    name = (file.filename or "").replace("\\", "/").rpartition("/")[2][:100]
    data = await file.read()
    await run_blocking(lambda: detect_type(data, f"the file `{name}`"))
    return Media(data, name=name)
