"""Ray Serve for real: a cluster on this machine, replicas on its software adapter, requests through Ray's own proxy."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import ray
import yaml
from ray import serve
from ray.serve.schema import ServeDeploySchema
from ray.util import list_named_actors

from liveshape.serve.affinity import conversation_key, ranked
from liveshape.serve.fleet_options import FleetOptions
from liveshape.serve.ray import MODEL, build
from tests.llm.texts import CHAT_TEMPLATE
from tests.support.encoders import SIZE, static, write_encoder
from tests.test_blocks import free_port

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PATIENCE = 300  # seconds after which a test that waits has failed: replicas load a model each
STORE = 80 << 20  # bytes of Ray's object store, which nothing here needs
# A machine that is busy is not one that is broken.
PATIENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": str(PATIENCE),
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": str(PATIENCE),
}
SMALL = {"sequences": 4, "cache_bytes": 8 << 20, "max_context": 512, "cpus": 0}


def until(holds: Callable[[], Any]) -> Any:
    last = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < last, "it never came about"
        time.sleep(0.1)
    return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[int]:
    """The port of a proxy on a cluster of this machine alone."""
    os.environ |= PATIENT
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    ray.init(
        address="local",
        num_cpus=4,
        num_gpus=0,
        object_store_memory=STORE,
        include_dashboard=False,
        configure_logging=False,
        runtime_env={"env_vars": {"PYTHONPATH": path}},
    )
    port = free_port()
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    yield port
    serve.shutdown()
    ray.shutdown()


@contextmanager
def fleet(port: int, **options: Any) -> Iterator[openai.OpenAI]:
    """An application with these options, and a client of it."""
    serve.run(build({**SMALL, **options}), name="fleet", route_prefix="/")
    try:
        with openai.OpenAI(
            base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0, timeout=PATIENCE
        ) as made:
            yield made
    finally:
        serve.delete("fleet")


def running() -> int:
    """How many replicas of the model run."""
    found: int = serve.status().applications["fleet"].deployments[MODEL].replica_states.get("RUNNING", 0)
    return found


def actors() -> list[str]:
    """The names of the actors of the model that are alive."""
    return [each["name"] for each in list_named_actors(all_namespaces=True) if f"#{MODEL}#" in each["name"]]


def home(body: dict[str, Any], names: list[str]) -> str:
    """The actor that a request belongs to."""
    return home_of(conversation_key(json.dumps(body).encode()), names)


def home_of(key: str, names: list[str]) -> str:
    by_id = {name.rpartition("#")[2]: name for name in names}
    return by_id[ranked(key, dict.fromkeys(by_id, 0), 8)[0][0]]


def template(folder: Path) -> str:
    (folder / "chat.jinja").write_text(CHAT_TEMPLATE)
    return str(folder / "chat.jinja")


def told_by(client: openai.OpenAI, text: str, **options: Any) -> Any:
    return client.completions.create(model="story", prompt=text, temperature=0, **options)


def test_streams_and_a_replica_that_dies_in_the_middle(cluster: int, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("none\n")
    encoder = write_encoder(tmp_path / "encoder", static())
    given = {"chat_template": template(tmp_path), "api_key_file": tmp_path / "key", "embeddings": encoder}
    with fleet(cluster, min_replicas=2, max_replicas=2, **given) as client:
        until(lambda: len(actors()) == 2)
        whole = told_by(client, "Once upon a time", max_tokens=20)
        streamed = list(told_by(client, "Once upon a time", max_tokens=20, stream=True))
        assert "".join(chunk.choices[0].text for chunk in streamed) == whole.choices[0].text
        assert len(streamed) > 10
        messages: Any = [{"role": "user", "content": "Hi"}]
        assert (
            client.chat.completions.create(model="story", messages=messages, max_tokens=5).usage.completion_tokens == 5
        )
        assert [model.id for model in client.models.list()] == ["story", "encoder"]
        assert len(client.embeddings.create(model="encoder", input="cats").data[0].embedding) == SIZE
        with pytest.raises(openai.AuthenticationError):
            client.with_options(api_key="other").models.list()
        with pytest.raises(openai.BadRequestError, match="max_tokens"):
            told_by(client, "Once", max_tokens=0)
        with pytest.raises(openai.NotFoundError):
            client.completions.create(model="gpt", prompt="x")
        url = f"http://127.0.0.1:{cluster}"
        assert httpx.get(f"{url}/health", timeout=PATIENCE).json() == {"status": "ok"}
        assert "<!doctype html>" in httpx.get(url, timeout=PATIENCE).text[:20]

        # Three streams on each replica; then one of them dies.
        first, second = actors()
        prompts: dict[str, list[str]] = {first: [], second: []}
        for number in range(1000):
            prompt = f"{number} dogs went"
            prompts[home({"prompt": prompt}, [first, second])].append(prompt)
        begun = threading.Barrier(7)
        ends: dict[str, str] = {}

        def read(prompt: str) -> None:
            chunks = iter(told_by(client, prompt, max_tokens=400, stream=True))
            next(chunks)
            begun.wait(PATIENCE)
            try:
                *_, last = chunks
                ends[prompt] = str(last.choices[0].finish_reason)
            except openai.APIError as error:
                ends[prompt] = str(error)

        asked = [*prompts[first][:3], *prompts[second][:3]]
        readers = [threading.Thread(target=read, args=(prompt,)) for prompt in asked]
        for reader in readers:
            reader.start()
        begun.wait(PATIENCE)
        ray.kill(ray.get_actor(first, namespace="serve"), no_restart=True)
        for reader in readers:
            reader.join(PATIENCE)
        lost = "the replica that was answering has ended; ask again"
        assert [ends[prompt] for prompt in asked[:3]] == [lost] * 3
        assert {ends[prompt] for prompt in asked[3:]} <= {"length", "stop"}
        # The next requests are served, by the other one and then by one that Ray starts instead.
        for prompt in asked:
            assert told_by(client, prompt, max_tokens=5).choices[0].finish_reason == "length"
        until(lambda: len(actors()) == 2 and first not in actors())
        until(lambda: running() == 2)
        assert second in actors()


def test_a_conversation_stays_on_the_replica_that_has_its_pages(cluster: int, tmp_path: Path) -> None:
    with fleet(cluster, min_replicas=2, max_replicas=2, chat_template=template(tmp_path)):
        until(lambda: running() == 2)
        names = actors()

        replicas = serve.get_deployment_handle(MODEL, "fleet").options(stream=True)
        scope = {"type": "http", "method": "GET", "path": "/metrics", "query_string": b"", "headers": []}
        keys = {home_of(str(number), names): str(number) for number in range(1000)}

        def prompted(name: str) -> int:
            """Tokens of the prompts that a replica has answered, by its own metrics."""
            messages = [each for batch in replicas.answer.remote(keys[name], scope, b"") for each in batch]
            (count,) = re.findall(rb"^liveshape_prompt_tokens_total (\d+)$", messages[1]["body"], re.MULTILINE)
            return int(count)

        for number in range(12):
            opening = [{"role": "user", "content": f"{number} dogs went to the park and found a ball there."}]
            turns, before = list(opening), {name: prompted(name) for name in names}
            for answer in ("It was red.", "It was blue."):
                body = {"messages": turns, "max_tokens": 2}
                found = httpx.post(f"http://127.0.0.1:{cluster}/v1/chat/completions", json=body, timeout=PATIENCE)
                assert found.status_code == 200, found.text
                turns += [{"role": "assistant", "content": answer}, {"role": "user", "content": "And then?"}]
            grown = [name for name in names if prompted(name) > before[name]]
            assert grown == [home({"messages": opening}, names)]


def test_replicas_come_and_go_with_the_load(cluster: int) -> None:
    with fleet(cluster, sequences=2, max_replicas=2, upscale_delay=1, downscale_delay=1) as client:
        config = serve.status().applications["fleet"].deployments[MODEL]
        assert config.replica_states == {"RUNNING": 1}
        stop = threading.Event()

        def load(number: int) -> None:
            while not stop.is_set():
                told_by(client, f"{number} cats", max_tokens=60)

        users = [threading.Thread(target=load, args=(number,)) for number in range(6)]
        for user in users:
            user.start()
        try:
            until(lambda: running() == 2)
        finally:
            stop.set()
            for user in users:
                user.join(PATIENCE)
        until(lambda: running() == 1)
        assert told_by(client, "Once", max_tokens=3).usage.completion_tokens == 3


def test_what_waits_too_long_and_who_leaves(cluster: int) -> None:
    with fleet(cluster, sequences=1, max_waiting=1) as client:
        url = f"http://127.0.0.1:{cluster}"
        body = {"prompt": "Once", "max_tokens": 400, "temperature": 0, "stream": True}
        for _ in range(4):
            with (
                httpx.Client(timeout=PATIENCE) as http,
                http.stream("POST", f"{url}/v1/completions", json=body) as left,
            ):
                next(left.iter_lines())
        # Their clients are gone, so their sequences end long before their last token, and the next one is served.
        assert told_by(client, "Two", max_tokens=2).usage.completion_tokens == 2
        metrics = httpx.get(f"{url}/metrics", timeout=PATIENCE).text
        assert int(metrics.split("\nliveshape_generated_tokens_total ")[1].split()[0]) < 4 * 400
        url = f"{url}/v1/completions"
        statuses = []

        def ask() -> None:
            statuses.append(httpx.post(url, json={**body, "stream": False}, timeout=PATIENCE).status_code)

        askers = [threading.Thread(target=ask) for _ in range(6)]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join(PATIENCE)
        assert set(statuses) == {200, 429}


def test_an_update_replaces_replicas_and_loses_no_request(cluster: int) -> None:
    with fleet(cluster, min_replicas=2, max_replicas=2, name="old") as client:
        old, stop = set(actors()), threading.Event()
        statuses: list[int] = []

        def load(number: int) -> None:
            body = {"prompt": f"{number} cats", "max_tokens": 20}
            while not stop.is_set():
                found = httpx.post(f"http://127.0.0.1:{cluster}/v1/completions", json=body, timeout=PATIENCE)
                statuses.append(found.status_code)

        users = [threading.Thread(target=load, args=(number,)) for number in range(3)]
        for user in users:
            user.start()
        try:
            options = {**SMALL, "min_replicas": 2, "max_replicas": 2, "name": "new"}
            serve.run(build(options), name="fleet", route_prefix="/")
        finally:
            stop.set()
            for user in users:
                user.join(PATIENCE)
        assert statuses
        assert set(statuses) == {200}
        assert not old & set(actors())
        assert [model.id for model in client.models.list()] == ["new"]


def test_the_config_file_is_one_of_ray_and_its_options_are_ours() -> None:
    document = yaml.safe_load((ROOT / "examples" / "fleet.yaml").read_text())
    (application,) = ServeDeploySchema.model_validate(document).applications
    options = FleetOptions.read(application.args)
    (model,) = application.deployments
    assert model.name == MODEL
    assert model.max_ongoing_requests >= options.sequences
    assert application.import_path == "liveshape.serve.ray:build"


def test_serve_run_starts_it(tmp_path: Path) -> None:
    """The command of docs/scale.md, with the options of the environment."""
    port = free_port()
    (tmp_path / "fleet.yaml").write_text(
        yaml.safe_dump(
            {
                "http_options": {"host": "127.0.0.1", "port": port},
                "applications": [{"name": "fleet", "route_prefix": "/", "import_path": "liveshape.serve.ray:app"}],
            }
        )
    )
    named = {f"LIVESHAPE_SERVE_{name.upper()}": str(value) for name, value in SMALL.items()}
    path = os.pathsep.join([str(ROOT), *sys.path])
    environment = {**os.environ, **PATIENT, **named, "PYTHONPATH": path, "RAY_ADDRESS": "local"}
    command = [str(Path(sys.executable).parent / "serve"), "run", str(tmp_path / "fleet.yaml")]
    with subprocess.Popen(
        command, env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
    ) as running:
        try:

            def answers() -> bool:
                assert running.poll() is None
                try:
                    return httpx.get(f"http://127.0.0.1:{port}/health", timeout=10).status_code == 200
                except httpx.HTTPError:
                    return False

            until(answers)
            body = {"prompt": "Once", "max_tokens": 3}
            told = json.loads(httpx.post(f"http://127.0.0.1:{port}/v1/completions", json=body, timeout=PATIENCE).text)
            assert told["usage"]["completion_tokens"] == 3
        finally:
            running.terminate()
            running.wait(PATIENCE)
