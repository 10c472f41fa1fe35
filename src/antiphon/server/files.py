"""OpenAI's Files API: texts that questions are looked up in, as its SDKs upload and list them."""

from __future__ import annotations

from email.message import Message as Header
from typing import Annotated, Any, Final, Literal

from msgspec import Meta
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from antiphon.core.knowledge.kept import File
from antiphon.errors import InvalidInput
from antiphon.server.describing.endpoints import Endpoint
from antiphon.server.http.body import Query, answer, engine_of, queried
from antiphon.server.responses.output import Json
from antiphon.server.rights.principals import principal_of

PATH: Final = "/v1/files"
ONE: Final = PATH + "/{file}"
SECOND_MS: Final = 1000
MOST_FIELDS: Final = 16
FIELDS: Final = frozenset({"file", "purpose"})


class Listing(Query, frozen=True, kw_only=True):
    """Which files: so many after one of them, newest first or last."""

    purpose: str | None = None
    after: str | None = None
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 10_000
    order: Literal["asc", "desc"] = "desc"


async def _upload(request: Request) -> Response:
    """Keep a text, sent as a form with `file` and `purpose`; questions may then be looked up in it.

    It is read in the encoding that its part declares, else in the one that its bytes tell.
    """
    form = await _form(request)
    try:
        file, purpose = form.get("file"), form.get("purpose")
        foreign = sorted(set(form) - FIELDS)
        if foreign:
            raise InvalidInput(
                "This field is not supported.", code="unsupported_parameter", at=foreign[0][:80]
            )
        if not isinstance(file, UploadFile):
            raise InvalidInput("The file is missing.", code="missing_file", at="file")
        if not isinstance(purpose, str) or not purpose:
            raise InvalidInput("The purpose is missing.", code="missing_purpose", at="purpose")
        kind, charset = _kind(file.content_type)
        kept = await engine_of(request).files.add(
            principal_of(request).tenant,
            file.filename or "",
            await file.read(),
            charset=charset,
            media_type=kind,
            purpose=purpose[:64],
        )
    finally:
        await form.close()
    return answer(_resource(kept))


async def _form(request: Request) -> FormData:
    try:
        most = engine_of(request).world.settings.max_body_bytes
        return await request.form(max_files=1, max_fields=MOST_FIELDS, max_part_size=most)
    except HTTPException as error:
        problem = error.detail
    raise InvalidInput(f"The form cannot be read: {problem}", code="bad_form")


def _kind(content_type: str | None) -> tuple[str, str | None]:
    """Return the media type and the charset of a part."""
    header = Header()
    header["content-type"] = content_type or "text/plain"
    return header.get_content_type(), header.get_content_charset()


async def _list(request: Request) -> Response:
    """List the files that there are."""
    query = queried(request, Listing)
    found = await engine_of(request).world.store.knowledge.files(
        principal_of(request).tenant,
        after=query.after,
        limit=query.limit + 1,
        newest_first=query.order == "desc",
    )
    page = found[: query.limit]
    data = [_resource(f) for f in page if query.purpose in (None, f.purpose)]
    return answer(
        {
            "object": "list",
            "data": data,
            "first_id": page[0].id if page else None,
            "last_id": page[-1].id if page else None,
            "has_more": len(found) > len(page),
        }
    )


async def _retrieve(request: Request) -> Response:
    """Return what is known of a file."""
    return answer(_resource(await _file(request)))


async def _content(request: Request) -> Response:
    """Return a file's bytes as they came."""
    file = await _file(request)
    data = await engine_of(request).world.store.knowledge.file_data(file.tenant, file.id)
    # Never as a page: whoever uploaded it may not be who opens it in a browser.
    headers = {"content-disposition": "attachment", "x-content-type-options": "nosniff"}
    return Response(data, media_type="application/octet-stream", headers=headers)


async def _delete(request: Request) -> Response:
    """Take a file away for good. What was found in it stays beside the messages it was found for."""
    file = await _file(request)
    await engine_of(request).world.store.knowledge.delete_file(file.tenant, file.id)
    return answer({"id": file.id, "object": "file", "deleted": True})


async def _file(request: Request) -> File:
    name, tenant = request.path_params["file"], principal_of(request).tenant
    return await engine_of(request).world.store.knowledge.file(tenant, name)


def _resource(file: File) -> Json:
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": file.created_ms // SECOND_MS,
        "expires_at": None,
        "filename": file.name,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }


routes: Final = [
    Endpoint("POST", PATH, _upload, answer=dict[str, Any]),
    Endpoint("GET", PATH, _list, query=Listing, answer=dict[str, Any]),
    Endpoint("GET", ONE, _retrieve, answer=dict[str, Any]),
    Endpoint(
        "GET", ONE + "/content", _content, answer=bytes, media_type="application/octet-stream"
    ),
    Endpoint("DELETE", ONE, _delete, answer=dict[str, Any]),
]
