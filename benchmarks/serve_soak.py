"""Whether a server's memory stays flat under ten minutes of clients of every kind, including badly behaved ones.

    python benchmarks/serve_soak.py demo/run --minutes 10

Prints the server's memory as /metrics reports it; fails if the last third needs over 5 % more than the second.
"""

import argparse
import asyncio
import json
import random
import re
import time
from collections import Counter
from pathlib import Path

from clients import Client, serve_command, started

from transduce.text import numbers


async def ask(client: Client, dice: random.Random, texts: list[str]) -> str:
    """Send a request of a random kind; return what it was and how it was answered."""
    text = dice.choice(texts)
    match dice.randrange(8):
        case 0 | 1 | 2:
            return f"translate {await client.translate(text)}"
        case 3:
            asked = {"texts": dice.sample(texts, 5), "n_best": 3, "alignments": True}
            return f"v1 translate {(await client.post('/v1/translate', asked))[0]}"
        case 4:
            return f"v1 stream {(await client.post('/v1/stream', {'text': chr(10).join(dice.sample(texts, 100))}))[0]}"
        case 5:
            path = dice.choice(["/v1/attention", "/v1/continue"])
            return f"{path[1:].replace('/', ' ')} {(await client.post(path, {'text': text}))[0]}"
        case 6:
            wrong = dice.choice([b"{", b'{"texts": 3}', b'{"texts": ["' + b"x" * 30_000 + b'"]}', b"\xff"])
            return f"wrong {(await client.ask('POST', '/v1/translate', wrong))[0]}"
        case _:
            body = json.dumps({"text": "\n".join(dice.sample(texts, 300))}).encode()
            await client.send("POST", "/v1/stream", body, "application/json")
            await asyncio.sleep(dice.random() / 20)
            client.close()
            return "vanished"


async def live(port: int, until: float, seed: int, texts: list[str], counts: Counter[str]) -> None:
    """Run one client until the end."""
    client, dice = Client(port), random.Random(seed)
    while time.monotonic() < until:
        counts[await ask(client, dice, texts)] += 1
        await asyncio.sleep(dice.random() / 10)
    client.close()


async def watch(port: int, until: float, begin: float) -> list[float]:
    """Return the server's memory in MiB, measured twice a minute."""
    found: list[float] = []
    while True:
        await asyncio.sleep(max(0.0, min(30, until - time.monotonic())))
        client = Client(port)  # the server closes connections that are idle for so long
        _, text = await client.ask("GET", "/metrics")
        client.close()
        line = re.search(r"^process_resident_memory_bytes (\S+)", text.decode(), re.MULTILINE)
        assert line
        found.append(float(line[1]) / 2**20)
        print(f"{(time.monotonic() - begin) / 60:5.1f} min  {found[-1]:7.1f} MiB", flush=True)
        if time.monotonic() >= until:
            return found


async def soak(port: int, minutes: float, clients: int) -> int:
    """Run all clients; return 1 if memory has grown by more than 5 % or a request was answered with 500, else 0."""
    texts = [source for source, _ in numbers.corpus("dev", 2000)]
    counts: Counter[str] = Counter()
    begin = time.monotonic()
    until = begin + 60 * minutes
    others = asyncio.gather(*(live(port, until, seed, texts, counts) for seed in range(clients)))
    memory = await watch(port, until, begin)
    await others
    print(", ".join(f"{kind}: {count:,}" for kind, count in sorted(counts.items())))
    third = max(1, len(memory) // 3)
    second, last = sorted(memory[third : 2 * third] or memory), sorted(memory[-third:])
    growth = last[len(last) // 2] / second[len(second) // 2] - 1
    print(f"{sum(counts.values()):,} requests; the last third needs {100 * growth:+.1f} % of the second")
    return int(growth > 0.05 or any(kind.endswith(" 500") for kind in counts))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=8)
    given = parser.parse_args()
    with started(*serve_command(given.run)) as port:
        return asyncio.run(soak(port, given.minutes, given.clients))


if __name__ == "__main__":
    raise SystemExit(main())
