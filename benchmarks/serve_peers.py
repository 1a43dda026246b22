"""A server of twenty lines around CTranslate2, as a user of it writes one.

    python -m benchmarks.serve_peers MODEL PORT '{}'    # a request is a batch
    python -m benchmarks.serve_peers MODEL PORT '{"seconds": 0.005}'    # those of 5 ms

MODEL is a folder of `to_ctranslate2.write`, with `peer.json`: its tokenizer and options
of the search; the JSON may have settings of CTranslate2, too. benchmarks/serve.py
measures it beside our own server.
"""

import asyncio
import json
import runpy
import sys
from pathlib import Path

import ctranslate2
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse
from starlette.routing import Route


class Model:
    """An exported model; `settings` are of CTranslate2's `Translator`."""

    def __init__(self, folder: Path, settings: dict):
        peer = json.loads((folder / "peer.json").read_text())
        pieces = runpy.run_path(str(folder / "pieces.py"))["Pieces"]
        self.pieces, self.options = pieces(folder, peer["tokenizer"]), peer["options"]
        self.translator = ctranslate2.Translator(str(folder), **settings)

    def __call__(self, lines: list[str]) -> list[str]:
        sources = [self.pieces.encode(line) for line in lines]
        results = self.translator.translate_batch(sources, **self.options)
        return [self.pieces.decode(result.hypotheses[0]) for result in results]


class Queue:
    """Translates what arrives within some seconds together."""

    def __init__(self, model: Model, seconds: float):
        self.model, self.seconds = model, seconds
        self.waiting: list[tuple[list[str], asyncio.Future]] = []
        self.free = asyncio.Semaphore(model.translator.num_translators)
        self.running: set[asyncio.Task] = set()

    async def __call__(self, lines: list[str]) -> list[str]:
        future = asyncio.get_running_loop().create_future()
        self.waiting.append((lines, future))
        if len(self.waiting) == 1:
            task = asyncio.create_task(self.batch())
            self.running.add(task)
            task.add_done_callback(self.running.discard)
        return await future

    async def batch(self) -> None:
        await asyncio.sleep(self.seconds)
        async with self.free:  # while all threads are busy, more join the batch
            batch, self.waiting = self.waiting, []
            lines = [line for request, _ in batch for line in request]
            texts = iter(await run_in_threadpool(self.model, lines))
        for request, future in batch:
            future.set_result([next(texts) for _ in request])


def application(folder: Path, seconds: float = 0.0, **settings) -> Starlette:
    model = Model(folder, settings)
    queue = Queue(model, seconds) if seconds else None

    async def translate(request):
        lines = (await request.json())["q"]
        if queue:
            return JSONResponse({"translatedText": await queue(lines)})
        return JSONResponse({"translatedText": await run_in_threadpool(model, lines)})

    async def ready(request):
        return JSONResponse({})

    routes = [
        Route("/translate", translate, methods=["POST"]),
        Route("/ready", ready),
    ]
    return Starlette(routes=routes)


if __name__ == "__main__":
    made = application(Path(sys.argv[1]), **json.loads(sys.argv[3]))
    uvicorn.run(made, port=int(sys.argv[2]), log_level="warning", access_log=False)
