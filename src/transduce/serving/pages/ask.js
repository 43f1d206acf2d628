// Requests to the server, as JSON or a form; errors have the server's reason, and streams come as events.

const asking = { key: "" };

async function ask(path, body, signal) {
  const headers = {};
  if (asking.key) headers["X-API-Key"] = asking.key;
  const form = body instanceof FormData;
  if (body !== undefined && !form) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, {
      method: body === undefined ? "GET" : "POST",
      headers,
      body: body === undefined || form ? body : JSON.stringify(body),
      signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the server does not answer");
  }
  if (answer.ok) return answer;
  let reason = `the server answered ${answer.status}`;
  try {
    reason = (await answer.json()).error ?? reason;
  } catch {
    // not JSON: a proxy's page, say
  }
  const error = new Error(reason);
  error.status = answer.status;
  error.wait = Number(answer.headers.get("Retry-After")) || 0;
  throw error;
}

// Yield the events of an answer as they arrive: [name, data].
async function* readEvents(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value;
    const events = held.split("\n\n");
    held = events.pop();
    for (const event of events) {
      const found = /^event: (.*)\ndata: (.*)$/s.exec(event);
      if (found) yield [found[1], JSON.parse(found[2])];
    }
  }
}
