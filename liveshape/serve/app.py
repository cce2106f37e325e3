"""The ASGI app: its routes, and what each does with the engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from liveshape.llm.arguments import text_of, token_ids
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.serve.answers import Answers, begin
from liveshape.serve.anthropic_messages import AnthropicMessage
from liveshape.serve.authorization import Authorization
from liveshape.serve.bodies import JsonBody, read_fields
from liveshape.serve.metrics import MEDIA_TYPE
from liveshape.serve.openai_chat import ChatCompletion
from liveshape.serve.openai_completions import Completion
from liveshape.serve.openai_embeddings import EmbeddingRequest
from liveshape.serve.openai_messages import template_messages, template_tools
from liveshape.serve.other_routes import advice
from liveshape.serve.page import headers as page_headers
from liveshape.serve.page import page
from liveshape.serve.refusals import ANTHROPIC, Refusal, error_body, refusal_of, refused
from liveshape.serve.request_log import TOLD, RequestLog, log_failure
from liveshape.serve.service import Service, unknown_model
from liveshape.serve.streaming import ClientGone, EventStream, event, until_gone

Read = TypeVar("Read")
Endpoint = Callable[[Request], Awaitable[Response]]


def app_of(service: Service) -> Starlette:
    """The app of a service.

    Example: `uvicorn.run(app_of(Service(("story",))))`.
    """
    routes = _Routes(service)
    table: dict[str, tuple[str, Endpoint]] = {
        "/": ("GET", routes.page),
        "/health": ("GET", routes.health),
        "/metrics": ("GET", routes.metrics),
        "/v1/models": ("GET", routes.models),
        "/v1/models/{name:path}": ("GET", routes.model),
        "/v1/chat/completions": ("POST", routes.chat),
        "/v1/completions": ("POST", routes.completions),
        "/v1/embeddings": ("POST", routes.embeddings),
        ANTHROPIC: ("POST", routes.messages),
        f"{ANTHROPIC}/count_tokens": ("POST", routes.count_tokens),
        "/tokenize": ("POST", routes.tokenize),
        "/detokenize": ("POST", routes.detokenize),
    }
    outside = [Middleware(RequestLog, service=service, routes=list(table))]
    if service.cors:
        origins = list(service.cors)
        outside.append(Middleware(CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=["*"]))
    return Starlette(
        routes=[Route(path, _answered(endpoint), methods=[method]) for path, (method, endpoint) in table.items()],
        middleware=[*outside, Middleware(Authorization, service=service)],
        exception_handlers={HTTPException: _no_route(list(table))},
    )


def _answered(endpoint: Endpoint) -> Endpoint:
    """An endpoint whose errors are told to the client; those that nobody expects are logged with their trace."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ClientGone:
            return Response(status_code=499)  # nobody reads it; the log has it
        except Exception as error:
            return _refused(request, refusal_of(error), error)

    return answer


def _refused(request: Request, refusal: Refusal, error: Exception) -> Response:
    request.scope[TOLD]["error"] = refusal.message
    if refusal.status == 500:
        log_failure(error)
    return JsonBody(error_body(refusal, request.url.path), refusal.status, refusal.headers)


def _no_route(routes: Sequence[str]) -> Callable[[Request, Exception], Awaitable[Response]]:
    """What is said of a path without a route: which one does it here."""

    async def answer(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.url.path
        headers = dict(error.headers or {})
        message = error.detail
        if error.status_code == 404:
            instead = advice(path, routes)
            message = f"there is nothing at {path[:200]}" + ("" if instead is None else f": {instead}")
        elif error.status_code == 405:
            allowed = headers.get("Allow", "another method")
            message = f"{request.method} is not answered at {path[:200]}: {allowed} is"
        return JsonBody(error_body(Refusal(error.status_code, message), path), error.status_code, headers)

    return answer


class _Routes:
    """The endpoints of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    # What the server is

    async def page(self, request: Request) -> Response:
        return Response(page(), headers=dict(page_headers()))

    async def health(self, request: Request) -> Response:
        status = self._service.health(time.monotonic())
        if status == "ok":
            return JsonBody({"status": status})
        return JsonBody({"status": status}, 503, {"Retry-After": "1"})

    async def metrics(self, request: Request) -> Response:
        engine = self._service.engine
        text = self._service.metrics.text(None if engine is None else engine.status)
        return Response(text, media_type=MEDIA_TYPE)

    async def models(self, request: Request) -> Response:
        rows = [self._model(name) for name in self._service.all_names]
        ends = {"has_more": False, "first_id": rows[0]["id"], "last_id": rows[-1]["id"]}
        return JsonBody({"object": "list", "data": rows, **ends})

    async def model(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._service.all_names:
            raise unknown_model(name, self._service.all_names)
        return JsonBody(self._model(name))

    def _model(self, name: str) -> dict[str, Any]:
        """A model in OpenAI's and in Anthropic's words, which do not contradict each other."""
        engine, embedder, created = self._service.engine, self._service.embedder, self._service.created
        context = None if engine is None else engine.max_context
        tasks = None if engine is None else _tasks(engine.tokenizer)
        if embedder is not None and name == embedder.name:
            context, tasks = embedder.encoder.max_tokens, ["embedding"]
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(created))
        return {
            "id": name,
            "object": "model",
            "created": created,
            "owned_by": "liveshape",
            "type": "model",
            "display_name": name,
            "created_at": moment,
            "max_context": context,
            "tasks": tasks,
        }

    # Text

    async def chat(self, request: Request) -> Response:
        service, engine = self._service, self._service.ready()
        fields = await read_fields(request, service.limits)

        def read(tokenizer: Tokenizer) -> tuple[ChatCompletion, list[int]]:
            asked = ChatCompletion.read(fields, service.model_of(fields), engine.vocab_size, service.limits)
            return asked, self._fitting(asked.chat.prompt(tokenizer), "messages")

        asked, ids = await self._prepared(request, read)
        answers = await begin(engine, asked.chat.requests(ids), service.metrics)
        if asked.chat.stream:
            chunks = asked.chunks(answers, engine.tokenizer, ids, service.limits.ping_seconds)
            return self._streamed(request, answers, chunks)
        return await self._whole(request, answers, asked.whole(answers, engine.tokenizer, ids))

    async def completions(self, request: Request) -> Response:
        service, engine = self._service, self._service.ready()
        fields = await read_fields(request, service.limits)

        def read(tokenizer: Tokenizer) -> Completion:
            asked = Completion.read(fields, service.model_of(fields), tokenizer, engine.vocab_size, service.limits)
            for prompt in asked.prompts:
                self._fitting(prompt.ids, "prompt")
            return asked

        asked = await self._prepared(request, read)
        answers = await begin(engine, asked.requests(), service.metrics)
        if asked.stream:
            chunks = asked.chunks(answers, engine.tokenizer, service.limits.ping_seconds)
            return self._streamed(request, answers, chunks)
        return await self._whole(request, answers, asked.whole(answers, engine.tokenizer))

    async def messages(self, request: Request) -> Response:
        engine = self._service.ready()
        asked, ids = await self._message(request)
        answers = await begin(engine, asked.chat.requests(ids), self._service.metrics)
        if asked.chat.stream:
            events = asked.events(answers, engine.tokenizer, ids, self._service.limits.ping_seconds)
            return self._streamed(request, answers, events)
        return await self._whole(request, answers, asked.whole(answers, engine.tokenizer, ids))

    async def count_tokens(self, request: Request) -> Response:
        _, ids = await self._message(request, counts=True)
        return JsonBody({"input_tokens": len(ids)})

    async def _message(self, request: Request, counts: bool = False) -> tuple[AnthropicMessage, list[int]]:
        service, engine = self._service, self._service.ready()
        fields = await read_fields(request, service.limits)

        def read(tokenizer: Tokenizer) -> tuple[AnthropicMessage, list[int]]:
            asked = AnthropicMessage.read(
                fields, service.model_of(fields), engine.vocab_size, service.limits, counts=counts
            )
            ids = asked.chat.prompt(tokenizer)
            return asked, ids if counts else self._fitting(ids, "messages")

        return await self._prepared(request, read, counts=counts)

    # Vectors

    async def embeddings(self, request: Request) -> Response:
        service = self._service
        service.ready()
        embedder, fields = service.embeds(), await read_fields(request, service.limits)

        def read(tokenizer: Tokenizer) -> EmbeddingRequest:
            encoder = embedder.encoder.with_tokenizer(tokenizer)
            return EmbeddingRequest.read(fields, service.encoder_of(fields), encoder, service.limits)

        tokenizer, most = embedder.encoder.tokenizer, embedder.encoder.max_tokens
        asked = await service.long.read(request, read, tokenizer, service.limits, holder="the encoder", context=most)
        request.scope[TOLD]["prompt_tokens"] = asked.tokens
        vectors = await until_gone(request.receive, embedder.vectors(asked.texts))
        return JsonBody(await asyncio.to_thread(asked.answer, vectors))

    # Tokens

    async def tokenize(self, request: Request) -> Response:
        engine, fields = self._service.ready(), await read_fields(request, self._service.limits)

        def read(tokenizer: Tokenizer) -> list[int]:
            self._service.model_of(fields)
            special = fields.flag("add_special_tokens", True)
            if "messages" in fields:
                messages = template_messages(fields.objects("messages", self._service.limits.messages))
                tools = template_tools(fields.objects("tools", self._service.limits.tools))
                fields.done()
                with refused("messages"):
                    return tokenizer.apply_chat_template(messages, tools=tools or None)
            text = fields.needed("content")
            fields.done()
            with refused("content"):
                return tokenizer.encode(text_of(text, "content"), add_special_tokens=special)

        tokens = await self._prepared(request, read, counts=True)
        return JsonBody({"tokens": tokens, "count": len(tokens), "max_context": engine.max_context})

    async def detokenize(self, request: Request) -> Response:
        engine, fields = self._service.ready(), await read_fields(request, self._service.limits)

        def read() -> str:
            self._service.model_of(fields)
            tokens = fields.needed("tokens")
            fields.done()
            with refused("tokens"):
                return engine.tokenizer.decode(token_ids(tokens))

        return JsonBody({"content": await asyncio.to_thread(read)})

    # What the routes of text share

    async def _prepared(self, request: Request, read: Callable[[Tokenizer], Read], counts: bool = False) -> Read:
        """What `read` makes of a request with the model's tokenizer, which refuses a text that cannot fit unread."""
        service, engine = self._service, self._service.ready()
        holder, context = "the context of this model", engine.max_context
        given = {"counted": context} if counts else {"context": context}
        return await service.long.read(request, read, engine.tokenizer, service.limits, holder=holder, **given)

    def _fitting(self, ids: list[int], field: str) -> list[int]:
        """A prompt that the context has room for, with a token of the answer."""
        most = self._service.ready().max_context
        if len(ids) > most:
            raise Refusal(
                400,
                f"the prompt is {len(ids):,} tokens long, the context of this model is {most:,}: shorten it, or start "
                "the server with a larger --max-context, and a --cache-size that holds it",
                field,
                "context_length_exceeded",
            )
        return ids

    async def _whole(self, request: Request, answers: Answers, collecting: Any) -> Response:
        try:
            body = await until_gone(request.receive, collecting)
        finally:
            await answers.aclose()
            _tell(request, answers)
        return JsonBody(body)

    def _streamed(self, request: Request, answers: Answers, events: AsyncGenerator[bytes, None]) -> Response:
        path = request.url.path

        async def safe() -> AsyncGenerator[bytes, None]:
            try:
                async for each in events:
                    yield each
            except Exception as error:
                refusal = refusal_of(error)
                request.scope[TOLD]["error"] = refusal.message
                if refusal.status == 500:
                    log_failure(error)
                yield event(error_body(refusal, path), "error" if path.startswith(ANTHROPIC) else None)

        async def close() -> None:
            await events.aclose()
            await answers.aclose()
            _tell(request, answers)

        return EventStream(safe(), close)


def _tasks(tokenizer: Tokenizer) -> list[str]:
    """What a language model answers: texts that go on, and conversations where it has a chat template."""
    return ["completion"] if tokenizer.chat_template is None else ["completion", "chat"]


def _tell(request: Request, answers: Answers) -> None:
    told = {"prompt_tokens": answers.prompt_tokens, "generated_tokens": answers.generated_tokens}
    request.scope[TOLD] |= {name: sum(counts) for name, counts in told.items()}
