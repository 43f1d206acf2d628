// The page: it translates what you type, shows how the translation could continue from a word you click and, below, the
// attention; and it translates files.

"use strict";

const PAUSE = 250, // ms without a key press before the text is sent
  LOOK = 500, // ms more before its attention is requested
  UNSURE = Math.log(0.5); // words below this log-probability are underlined

const at = (id) => document.getElementById(id);
// What is shown: `parts` are the sentences with their source and the translation chosen, and the text between them;
// `pair` are the languages they are in; `aimed` is whether the user has chosen the target language.
const state = { languages: [], parts: [], chosen: 0, pair: {}, aimed: false, running: null, looking: null, timer: 0, lookTimer: 0, file: null, documents: [] };

function segment(text, language) {
  if (globalThis.Intl?.Segmenter) {
    let segmenter;
    try {
      segmenter = new Intl.Segmenter(language, { granularity: "word" });
    } catch {
      segmenter = new Intl.Segmenter(undefined, { granularity: "word" });
    }
    return [...segmenter.segment(text)].map(({ segment, index, isWordLike }) => [segment, index, isWordLike]);
  }
  return [...text.matchAll(/[\p{L}\p{N}\p{M}'’-]+|[^\p{L}\p{N}\p{M}'’-]+/gu)].map((found) => [
    found[0],
    found.index,
    /[\p{L}\p{N}]/u.test(found[0]),
  ]);
}

// If the source is detected and the user has chosen no target, the server decides on it.
const asked = () => {
  const source = at("source").value === "auto" ? undefined : at("source").value;
  return { source, target: source || state.aimed ? at("target").value : undefined };
};

function say(text, wrong = false) {
  at("status").textContent = text;
  at("status").classList.toggle("error", wrong);
}

// ---- languages ----

async function showLanguages() {
  state.languages = await (await ask("languages")).json();
  const sources = state.languages.filter((one) => one.targets.some((code) => code !== one.code));
  const option = (code, name) => make("option", { value: code }, name);
  at("source").replaceChildren(
    ...(sources.length > 1 ? [option("auto", "detect")] : []),
    ...sources.map((one) => option(one.code, one.name)),
  );
  showTargets();
}

function showTargets() {
  const source = at("source").value,
    before = at("target").value;
  const from = state.languages.filter((one) => source === "auto" || one.code === source);
  const codes = [...new Set(from.flatMap((one) => one.targets.filter((code) => code !== one.code)))];
  const nameOf = (code) => state.languages.find((one) => one.code === code)?.name ?? code;
  at("target").replaceChildren(...codes.map((code) => make("option", { value: code }, nameOf(code))));
  if (codes.includes(before)) at("target").value = before;
  const back = state.languages.find((one) => one.code === at("target").value);
  at("swap").hidden = !back?.targets.some((code) => code !== back.code && (source === "auto" || code === source));
}

function swap() {
  const [source, target] = [at("source").value, at("target").value];
  at("source").value = target;
  showTargets();
  if (source !== "auto") at("target").value = source;
  const text = wholeText();
  if (text) at("text").value = text;
  showTargets();
  changed();
}

// ---- translating ----

function changed() {
  clearTimeout(state.timer);
  at("count").textContent = at("text").value.length ? `${at("text").value.length.toLocaleString("en")} characters` : "";
  state.timer = setTimeout(translate, PAUSE);
}

const wholeText = () => state.parts.map((part) => part.text + part.behind).join("");

async function translate() {
  state.running?.abort(); // the server abandons a request that nobody waits for
  state.looking?.abort();
  clearTimeout(state.lookTimer);
  const text = at("text").value;
  if (!text.trim()) {
    state.parts = [];
    at("translation").setAttribute("aria-busy", "false");
    show();
    say("");
    return;
  }
  const running = (state.running = new AbortController());
  at("translation").setAttribute("aria-busy", "true");
  try {
    const answer = await (await ask("v1/translate", { texts: [text], ...asked() }, running.signal)).json();
    const [found] = answer.translations;
    state.parts = [
      { text: "", behind: found.before },
      ...found.sentences.map((one) => ({
        source: one.source,
        text: one.candidates[0].text,
        behind: one.behind,
        best: one.candidates[0],
      })),
    ];
    state.chosen = Math.min(state.chosen, found.sentences.length - 1);
    if (state.chosen < 0) state.chosen = 0;
    show();
    const { source, target } = answer;
    state.pair = { source, target };
    if (at("target").value !== target) {
      at("target").value = target;
      showTargets();
    }
    const name = state.languages.find((one) => one.code === source)?.name ?? source;
    const unsaid = [...new Set(found.sentences.flatMap((one) => one.unsaid))];
    const notes = [at("source").value === "auto" && `from ${name}`, unsaid.length && `not said: ${unsaid.join(", ")}`];
    say(notes.filter(Boolean).join("; "));
    state.lookTimer = setTimeout(look, LOOK);
  } catch (error) {
    if (error.name === "AbortError") return;
    if (error.status === 503 && error.wait) state.timer = setTimeout(translate, 1000 * Math.min(error.wait, 10));
    say(error.message, true);
  } finally {
    if (state.running === running) at("translation").setAttribute("aria-busy", "false");
  }
}

const sentences = () => state.parts.filter((part) => part.source !== undefined);

// Return each character's log-probability, that of its subword.
function leastScores({ best, text }) {
  if (!best || best.text !== text) return [];
  const scores = [];
  let place = 0;
  best.tokens.forEach((token, number) => {
    const letters = token.replaceAll("\u2581", " ").length - (number === 0 && token.startsWith("\u2581") ? 1 : 0);
    for (let end = place + letters; place < end; place++) scores[place] = best.token_scores[number];
  });
  // Subwords spelled in bytes differ in length from their characters: then nothing is marked.
  return place === text.length ? scores : [];
}

function show() {
  at("choices").hidden = true;
  const shown = [];
  let number = -1;
  for (const part of state.parts) {
    if (part.source !== undefined) number++;
    const own = number,
      scores = leastScores(part);
    for (const [text, index, isWord] of segment(part.text, at("target").value)) {
      if (!isWord) {
        shown.push(text);
        continue;
      }
      const least = Math.min(0, ...scores.slice(index, index + text.length).filter((one) => one !== undefined));
      const word = make(
        "button",
        {
          type: "button",
          class: least < UNSURE ? "unsure" : "",
          title: "how the translation could continue from here",
          "data-sentence": own,
          "data-index": index,
        },
        text,
      );
      word.addEventListener("click", () => choose(word, own, index));
      shown.push(word);
    }
    shown.push(part.behind);
  }
  at("translation").replaceChildren(...shown);
  at("copy").hidden = !state.parts.length;
}

// Arrow keys move from word to word.
function walk(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const words = [...at("translation").querySelectorAll("button")];
  const place = words.indexOf(document.activeElement);
  if (!step || place < 0 || !words[place + step]) return;
  event.preventDefault();
  words[place + step].focus();
}

// ---- alternatives ----

async function choose(word, number, index) {
  for (const other of at("translation").querySelectorAll("button.on")) other.classList.remove("on");
  word.classList.add("on");
  const part = sentences()[number];
  const prefix = part.text.slice(0, index).trimEnd();
  if (state.chosen !== number) {
    state.chosen = number;
    look();
  }
  const list = make("ol");
  const title = make("h2", { dir: "auto" }, `from “${word.textContent}” on`);
  at("choices").replaceChildren(title, list);
  at("choices").hidden = false;
  list.append(make("li", { class: "quiet" }, "…"));
  try {
    const body = { text: part.source, prefix, n_best: 6, ...state.pair };
    const { candidates } = await (await ask("v1/continue", body)).json();
    list.replaceChildren(
      ...candidates.map((candidate) => {
        const kept = candidate.text.startsWith(prefix) ? prefix.length : 0;
        const share = Math.exp(candidate.log_probability); // among all possible translations
        const button = make(
          "button",
          { type: "button", dir: "auto" },
          make("span", {}, make("i", {}, candidate.text.slice(0, kept)), make("b", {}, candidate.text.slice(kept))),
          make("em", { title: "its probability" }, share < 0.001 ? share.toExponential(0) : share.toFixed(3)),
        );
        button.addEventListener("click", () => take(number, candidate, index));
        return make("li", {}, button);
      }),
    );
    list.querySelector("button")?.focus();
  } catch (error) {
    list.replaceChildren(make("li", { class: "error" }, error.message));
  }
}

function take(number, candidate, index) {
  const part = sentences()[number];
  part.text = candidate.text;
  part.best = candidate;
  part.taken = true; // no longer what the search found
  show();
  const words = [...at("translation").querySelectorAll(`button[data-sentence="${number}"]`)];
  (words.find((word) => Number(word.dataset.index) >= index) ?? words.at(-1))?.focus();
  look();
}

function leaveChoices(event) {
  if (event.key !== "Escape" || at("choices").hidden) return;
  at("choices").hidden = true;
  at("translation").querySelector("button.on")?.focus();
}

// ---- attention ----

async function look() {
  clearTimeout(state.lookTimer);
  const all = sentences();
  at("sentences").hidden = all.length < 2;
  at("sentences").replaceChildren(
    ...all.map((part, number) =>
      make(
        "button",
        {
          type: "button",
          "aria-pressed": String(number === state.chosen),
          onclick: () => {
            state.chosen = number;
            look();
          },
        },
        part.source,
      ),
    ),
  );
  if (!at("looking").open || !all.length) return;
  state.looking?.abort();
  const looking = (state.looking = new AbortController());
  const part = all[state.chosen];
  const body = { text: part.source, ...state.pair };
  if (part.taken) body.translation = part.text;
  try {
    const seen = await (await ask("v1/attention", body, looking.signal)).json();
    const root = make("div");
    at("seen").replaceChildren(root);
    showAttention(root, seen);
    for (const [title, draw] of [
      ["Probabilities", showSteps],
      ["Beam", showTree],
      ["Words", showWords],
    ]) {
      if (title === "Beam" && !seen.tree.length) continue;
      const section = make("section", {}, make("h2", {}, title));
      root.append(section);
      draw(section, seen);
    }
  } catch (error) {
    if (error.name !== "AbortError") at("seen").replaceChildren(make("p", { class: "quiet" }, error.message));
  }
}

// ---- files ----

async function translateFile() {
  const file = at("file").files[0];
  if (!file) return;
  at("file").value = "";
  at("save").hidden = true;
  at("progress-row").hidden = at("stop").hidden = false;
  const tell = (text, wrong = false) => {
    at("progress-text").textContent = text;
    at("progress-text").classList.toggle("error", wrong);
  };
  tell(file.name);
  const stop = (state.file = new AbortController());
  const ending = /(\.[^.]*)?$/.exec(file.name)[0].toLowerCase();
  try {
    const [made, target] = await (state.documents.includes(ending) ? sendDocument : streamText)(file, stop.signal, tell);
    if (at("save").href) URL.revokeObjectURL(at("save").href);
    at("save").href = URL.createObjectURL(made);
    at("save").download = file.name.replace(/(\.[^.]*)?$/, (end) => `.${target}${end || ".txt"}`);
    at("save").hidden = false;
    at("progress").value = 1;
    tell(`${file.name}: done`);
    at("save").focus();
  } catch (error) {
    at("progress").value = 0;
    tell(error.name === "AbortError" ? "stopped" : error.message, error.name !== "AbortError");
  } finally {
    at("stop").hidden = true;
  }
}

// A text is translated as a stream, sentence by sentence.
async function streamText(file, signal, tell) {
  at("progress").value = 0;
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    throw new Error(`${file.name} is not UTF-8 text`);
  }
  const parts = [];
  for await (const [name, data] of readEvents(await ask("v1/stream", { text, ...asked() }, signal))) {
    if (name === "error") throw new Error(data.error);
    if (name === "done") return [new Blob(parts, { type: "text/plain;charset=utf-8" }), data.target];
    parts.push(data.text);
    at("progress").value = data.done / data.of;
    tell(`${file.name}: ${Math.floor((100 * data.done) / data.of)} %`);
  }
  throw new Error("the server closed the connection too soon");
}

// A document comes back once all of it is translated.
async function sendDocument(file, signal) {
  at("progress").removeAttribute("value");
  const [form, target] = [new FormData(), at("target").value];
  form.append("file", file);
  form.append("source", at("source").value);
  form.append("target", target);
  const { translatedFileUrl } = await (await ask("translate_file", form, signal)).json();
  // Only its name: behind a proxy the server may not know its own address.
  const answer = await ask(`download_file/${translatedFileUrl.split("/").pop()}`, undefined, signal);
  return [await answer.blob(), target];
}

// ---- beginning ----

async function begin() {
  try {
    const settings = await (await ask("frontend/settings")).json();
    at("key-row").hidden = !settings.keyRequired;
    state.documents = [".htm", ...settings.supportedFilesFormat.filter((ending) => ending !== ".txt")];
    at("file").accept += `,${state.documents}`;
    await showLanguages();
  } catch (error) {
    say(error.message, true);
    return;
  }
  if (at("text").value) changed(); // browsers keep the text when the page is reloaded
}

at("key").addEventListener("input", () => {
  asking.key = at("key").value.trim();
  changed();
});
at("text").addEventListener("input", changed);
at("source").addEventListener("change", () => (showTargets(), changed()));
at("target").addEventListener("change", () => {
  state.aimed = true;
  showTargets();
  changed();
});
at("swap").addEventListener("click", swap);
at("translation").addEventListener("keydown", walk);
document.addEventListener("keydown", leaveChoices);
at("looking").addEventListener("toggle", look);
at("file").addEventListener("change", translateFile);
at("stop").addEventListener("click", () => state.file?.abort());
at("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(wholeText());
  say("copied");
});
begin();
