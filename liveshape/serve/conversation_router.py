"""A request router of Ray Serve that keeps a conversation on the replica that has its pages."""

from __future__ import annotations

from typing import Any

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

from liveshape.serve.affinity import ranked


class ConversationRouter(RequestRouter):
    """Prefers the replica of a request's conversation, whose key is the first argument of the call.

    Example: `RequestRouterConfig(request_router_class=ConversationRouter, request_router_kwargs={"spread": 8})`.
    """

    def initialize_state(self, spread: int = 8, **others: Any) -> None:
        """Take the settings of the deployment."""
        self._spread = spread

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Ranks of replicas; of a rank Ray takes the one with the fewest requests that has room."""
        key = ""
        if pending_request is not None:
            # Without it, a request that finds every replica full would ask them again and again without a pause.
            pending_request.routing_context.should_backoff = True
            key = str(pending_request.args[0]) if pending_request.args else ""
        replicas = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        lengths = self.replica_queue_len_cache
        loads = {name: lengths.get(replica.replica_id) or 0 for name, replica in replicas.items()}
        return [[replicas[name] for name in rank] for rank in ranked(key, loads, self._spread)]
