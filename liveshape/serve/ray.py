"""Ray Serve: the server on many adapters and machines. `serve run liveshape.serve.ray:build model=model.gguf`.

A gateway takes the requests of clients, and a replica of the model, which its router chooses, runs the same app as
`liveshape serve`. The gateway reads a body before it chooses, since only that tells which conversation it goes on with,
and it outlives a replica that fails in the middle of an answer.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayActorError
from ray.serve.config import AutoscalingConfig, RequestRouterConfig
from ray.serve.exceptions import BackPressureError
from ray.serve.handle import DeploymentHandle
from starlette.requests import Request
from starlette.responses import Response

from liveshape.device.backends import list_adapters
from liveshape.disk import read_text
from liveshape.llm.embedding.text_encoder import TextEncoder
from liveshape.serve.affinity import conversation_key
from liveshape.serve.app import app_of
from liveshape.serve.bodies import JsonBody, read_body
from liveshape.serve.conversation_router import ConversationRouter
from liveshape.serve.embedder import Embedder
from liveshape.serve.fleet_options import FleetOptions
from liveshape.serve.forwarding import Forwarded, Messages, ReplicaLost, answered, plain_scope
from liveshape.serve.refusals import Refusal, error_body
from liveshape.serve.replica_adapter import adapter_of
from liveshape.serve.replica_engine import replica_engine
from liveshape.serve.request_limits import RequestLimits
from liveshape.serve.request_log import log, log_to_stderr
from liveshape.serve.service import Service, model_name

MODEL, GATEWAY = "Model", "Gateway"  # the deployments, as a config file names them
_OPEN_REQUESTS = 10_000  # of a gateway, which only passes them on


class Replica:
    """A model on one adapter, which answers what gateways send it.

    Example: `serve.deployment(Replica).bind(FleetOptions(model="model.gguf"))`.
    """

    def __init__(self, options: FleetOptions) -> None:
        log_to_stderr()
        device = options.device
        if device is None:
            found = adapter_of(ray.get_runtime_context().get_accelerator_ids().get("GPU", []), list_adapters())
            device = None if found is None else str(found)
        key = None if options.api_key_file is None else read_text(Path(options.api_key_file)).strip()
        names = [options.name or model_name(options.model)]
        self._service = Service(names, key, any_model=options.any_model)
        if options.embeddings is not None:
            encoder, pooling = options.embeddings, options.pooling
            self._service.embedder = Embedder(
                model_name(encoder), lambda: TextEncoder.load(encoder, device=device, pooling=pooling)
            )
        self._service.engine = replica_engine(options, device)
        self._app = app_of(self._service)
        log("ready", model=self._service.names[0], device=self._service.engine.facts.device)

    async def answer(self, conversation: str, scope: dict[str, Any], body: bytes) -> Messages:
        """What the app sends for a request; the router reads the key of its conversation."""
        async for messages in answered(self._app, scope, body):
            yield messages

    def check_health(self) -> None:
        """Raise where requests wait and nothing moves: Ray starts another replica."""
        status = self._service.health(time.monotonic())
        if status != "ok":
            raise RuntimeError(f"the replica is {status}")


class Gateway:
    """Sends requests to replicas, and their answers to clients.

    Example: `serve.deployment(Gateway).bind(serve.deployment(Replica).bind(options))`.
    """

    def __init__(self, model: DeploymentHandle) -> None:
        self._replicas, self._limits = model.options(stream=True), RequestLimits()

    async def __call__(self, request: Request) -> Response:
        path, scope = request.url.path, plain_scope(request.scope)
        try:
            body = await read_body(request, self._limits)
        except Refusal as refusal:
            return JsonBody(error_body(refusal, path), refusal.status, refusal.headers)
        key = await asyncio.to_thread(conversation_key, body) if body else ""
        return Forwarded(lambda: self._asked(key, scope, body), path)

    async def _asked(self, key: str, scope: dict[str, Any], body: bytes) -> Messages:
        stream = self._replicas.answer.remote(key, scope, body)
        try:
            async for messages in stream:
                yield messages
        except RayActorError as error:
            raise ReplicaLost from error
        except BackPressureError as error:
            raise Refusal(
                429, "every replica is full and the queue is, too: ask again later", code="queue_full"
            ) from error
        except (asyncio.CancelledError, GeneratorExit):
            stream.cancel()  # the client is gone; of a request that failed it would raise its error once more
            raise


def build(args: dict[str, str]) -> serve.Application:
    """The application with these options (FleetOptions), the others from the environment or as usual.

    Example: `serve.run(build({"model": "model.gguf", "max_replicas": "4", "gpus": "1"}))`.
    """
    options = FleetOptions.of_environment(args)
    replicas = serve.deployment(
        Replica,
        name=MODEL,
        ray_actor_options={"num_cpus": options.cpus, "num_gpus": options.gpus},
        # Its usual value would end batching at five sequences, in silence.
        max_ongoing_requests=options.sequences,
        max_queued_requests=options.max_waiting,
        autoscaling_config=AutoscalingConfig(
            min_replicas=options.min_replicas,
            max_replicas=options.max_replicas,
            target_ongoing_requests=max(1, 3 * options.sequences // 4),
            upscale_delay_s=options.upscale_delay,
            downscale_delay_s=options.downscale_delay,
        ),
        health_check_period_s=10,
        graceful_shutdown_timeout_s=options.grace,
        request_router_config=RequestRouterConfig(
            request_router_class=ConversationRouter, request_router_kwargs={"spread": options.spread}
        ),
    )
    gateway = serve.deployment(
        Gateway,
        name=GATEWAY,
        ray_actor_options={"num_cpus": 0},
        max_ongoing_requests=_OPEN_REQUESTS,
        graceful_shutdown_timeout_s=options.grace,
    )
    return gateway.bind(replicas.bind(options))


def __getattr__(name: str) -> Any:
    """`app`: the application with the options of the environment, made when it is asked for."""
    if name == "app":
        return build({})
    raise AttributeError(f"module 'liveshape.serve.ray' has no attribute {name!r}")
