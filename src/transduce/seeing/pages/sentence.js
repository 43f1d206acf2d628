// The page of one sentence. `showSentence(root, seen)`, where `seen` is what `transduce show --json` prints, and may hold
// `roles`: for each kind and layer the role of each head.

const KINDS = [["encoder", "encoder"], ["decoder", "decoder"], ["cross", "encoder–decoder"]];
const EXPLAIN = {
  encoder: "Left: the source looks at itself, right.",
  decoder: "Left: each token of the translation, as the decoder takes it in, looks at itself and at those before it, right.",
  cross: "Left: the step that says a subword of the translation looks at the source, right.",
};

function showSentence(root, seen) {
  const sections = [
    ["Attention", showAttention],
    ["Probabilities", showSteps],
    ["Beam", showTree],
    ["Words", showWords],
  ].filter(([title]) => title !== "Beam" || seen.tree.length);
  const { target } = seen;
  const how = target.given ? "the translation was given" : target.complete ? "found by the search" : "cut at the longest it might become";
  root.append(
    make("h1", { dir: "auto" }, seen.source.text),
    make("p", { class: "translation", dir: "auto" }, target.text),
    make("p", { class: "quiet" }, `${seen.model}; ${how}; log P = ${target.log_probability.toFixed(3)}. A dot before a subword: it goes on a word.`),
    make("nav", {}, ...sections.map(([title]) => make("a", { href: `#${title.toLowerCase()}` }, title))),
  );
  for (const [title, show] of sections) {
    const section = make("section", { id: title.toLowerCase() }, make("h2", {}, title));
    root.append(section);
    show(section, seen);
  }
}

function showAttention(root, seen) {
  const state = { kind: "encoder", layer: seen.attention.encoder.length - 1, view: "lines", heads: null, focus: null, pinned: null };
  const count = () => seen.attention[state.kind][0].length;
  const controls = make("div", { class: "controls" });
  const note = make("p", { class: "quiet" });
  const plot = make("div", { class: "plot" });
  const detail = make("aside", { class: "detail", "aria-live": "polite", "aria-label": "where the word looks" });
  root.append(controls, note, make("div", { class: "figure" }, plot, detail));
  let drawn = [];

  const source = seen.source.pieces.map(readable), taken = seen.target.taken.map(readable), said = seen.target.said.map(readable);
  const labels = () => ({ encoder: [source, source], decoder: [taken, taken], cross: [said, source] })[state.kind];
  const roleOf = (head) => seen.roles?.[state.kind]?.[state.layer]?.[head];
  const chosen = () => [...state.heads].sort((one, other) => one - other);

  function change(changes) {
    Object.assign(state, changes);
    if (changes.kind !== undefined) {
      state.layer = Math.min(state.layer, seen.attention[state.kind].length - 1);
      state.focus = state.pinned = null;
    }
    if (changes.heads === null || changes.kind !== undefined) state.heads = new Set(Array(count()).keys());
    control();
    draw();
  }

  function control() {
    // What has the keyboard keeps it, though its button is made anew.
    const active = document.activeElement;
    const held = controls.contains(active) && active.name ? `[name="${active.name}"][value="${active.value}"]` : null;
    const heads = make("div", { class: "choice" });
    for (let head = 0; head < count(); head++) {
      const input = make("input", { type: "checkbox", name: "head", value: head, onchange: () => toggle(head) });
      input.checked = state.heads.has(head);
      const role = roleOf(head);
      heads.append(make("label", { class: "head", "--colour": colourOf(head), title: role ? `head ${head + 1}: ${role}` : `head ${head + 1}` }, input, make("span", {}, String(head + 1))));
    }
    heads.append(
      make("button", { type: "button", name: "heads", value: "all", onclick: () => change({ heads: null }) }, "all"),
      make("button", { type: "button", name: "heads", value: "none", onclick: () => change({ heads: new Set() }) }, "none"),
    );
    controls.replaceChildren(
      makeChoice("attention", "kind", KINDS, state.kind, (kind) => change({ kind })),
      makeChoice("layer", "layer", seen.attention[state.kind].map((_, layer) => [layer, String(layer + 1)]), state.layer, (layer) => change({ layer })),
      makeChoice("view", "view", [["lines", "lines"], ["map", "heat map"]], state.view, (view) => change({ view })),
      make("fieldset", {}, make("legend", {}, "heads"), heads),
    );
    const roles = [...new Set(Array.from({ length: count() }, (_, head) => roleOf(head)).filter(Boolean))].sort();
    if (roles.length) {
      const select = make("select", { name: "role", "aria-label": "heads by role", onchange: () => select.value && change({ heads: new Set([...Array(count()).keys()].filter((head) => roleOf(head) === select.value)) }) }, make("option", { value: "" }, "by role …"), ...roles.map((role) => make("option", { value: role }, role)));
      controls.append(make("div", {}, make("span", { class: "label" }, "role"), select));
    }
    const save = (kind) => make("button", { type: "button", name: "save", value: kind, onclick: () => saveDrawing(plot.querySelector("svg"), `${state.kind}-${state.layer + 1}`, kind) }, kind.toUpperCase());
    if (state.view === "lines") controls.append(make("div", {}, make("span", { class: "label" }, "save"), make("div", { class: "choice" }, save("svg"), save("png"))));
    if (held) controls.querySelector(held)?.focus();
    note.textContent = `${EXPLAIN[state.kind]} A line is as strong as its weight${state.view === "lines" ? "; weights below .04 are left out until a word is chosen" : ""}.`;
    if (state.view === "map") note.textContent = `${EXPLAIN[state.kind].replace("Left", "Rows").replace(", right", ", columns")} A cell is as strong as its weight.`;
  }

  function toggle(head) {
    const heads = new Set(state.heads);
    if (!heads.delete(head)) heads.add(head);
    change({ heads });
  }

  function draw() {
    const width = Math.floor(plot.clientWidth);
    const [queries, keys] = labels();
    const weights = seen.attention[state.kind][state.layer];
    drawn = [];
    if (!state.heads.size) {
      plot.replaceChildren(make("p", { class: "quiet" }, "No head is chosen."));
    } else if (state.view === "lines") {
      drawn = [drawLines({ width, queries, keys, weights, heads: chosen(), touch, pin })];
      plot.replaceChildren(drawn[0].element);
    } else {
      const one = state.heads.size === 1;
      const columns = one ? 1 : Math.max(2, Math.min(state.heads.size, Math.floor(width / 220)));
      const maps = make("div", { class: "maps" });
      maps.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
      for (const head of chosen()) {
        const map = drawMap({ width: (width - 16 * (columns - 1)) / columns, queries, keys, table: weights[head], head, labelled: one, point });
        drawn.push(map);
        const role = roleOf(head);
        maps.append(make("figure", { "--colour": colourOf(head) }, make("figcaption", {}, `head ${head + 1}${role ? `: ${role}` : ""}`), make("div", { class: "scroll" }, map.element)));
      }
      plot.replaceChildren(maps);
    }
    light();
  }

  function touch(side, index, forget = false) {
    if (forget) state.pinned = null;
    const focus = side ? { side, index } : state.pinned;
    if (JSON.stringify(focus) === JSON.stringify(state.focus)) return;
    state.focus = focus;
    light();
  }

  function pin(side, index) {
    const same = state.pinned && state.pinned.side === side && state.pinned.index === index;
    state.focus = state.pinned = same ? null : { side, index };
    light();
  }

  function point(place, click) {
    const focus = place ? { side: "query", index: place[0], key: place[1] } : click ? null : state.pinned;
    if (click) state.pinned = JSON.stringify(focus) === JSON.stringify(state.pinned) ? null : focus;
    state.focus = click ? state.pinned : focus;
    light();
  }

  function light() {
    for (const one of drawn) one.show(state.focus, Boolean(state.pinned) && JSON.stringify(state.pinned) === JSON.stringify(state.focus));
    detail.replaceChildren();
    detail.classList.toggle("idle", !state.focus);
    const [queries, keys] = labels();
    if (!state.focus) {
      detail.append(make("p", { class: "quiet" }, "Point at a word to see where it looks and in which heads; click or tap to keep it. With the keyboard: Tab, the arrow keys, Enter, Escape."));
      return;
    }
    const { side, index, key } = state.focus;
    const [own, others] = side === "query" ? [queries, keys] : [keys, queries];
    detail.append(make("h3", { dir: "auto" }, side === "query" ? `${own[index]} looks at` : `${own[index]} is looked at by`));
    const weights = seen.attention[state.kind][state.layer];
    for (const head of chosen()) {
      const shares = others.map((word, place) => [side === "query" ? weights[head][index][place] : weights[head][place][index], word, place]);
      const best = [...shares].sort((one, other) => other[0] - one[0]).slice(0, state.heads.size > 4 ? 2 : 4).filter(([share], place) => place === 0 || share >= 0.02);
      if (key !== undefined && !best.some(([, , place]) => place === key)) best.push(shares[key]);
      const role = roleOf(head);
      detail.append(make("div", { class: "who", "--colour": colourOf(head) }, `head ${head + 1}${role ? `: ${role}` : ""}`));
      for (const [share, word, place] of best) detail.append(makeBar(word, share, { colour: colourOf(head), chosen: place === key }));
    }
  }

  change({ kind: "encoder" });
  let last = plot.clientWidth;
  new ResizeObserver(() => {
    if (Math.abs(plot.clientWidth - last) < 2) return;
    last = plot.clientWidth;
    draw();
  }).observe(plot);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

function showSteps(root, seen) {
  const rivals = make("div", { class: "rivals", "aria-live": "polite" });
  const chips = make("div", { class: "chips" });
  // At first the least certain of them.
  let kept = seen.steps.reduce((least, step, number) => (step.probability < seen.steps[least].probability ? number : least), 0);
  const show = (number) => {
    [...chips.children].forEach((chip, place) => chip.classList.toggle("on", place === number));
    const step = seen.steps[number];
    const all = [[step.piece, step.probability, true], ...step.rivals.map(([piece, share]) => [piece, share, false])].sort((one, other) => other[1] - one[1]);
    const rank = step.rank === 1 ? "the most probable" : step.rank ? `number ${step.rank} of all` : `not among the first ${step.rivals.length + 1}`;
    rivals.replaceChildren(make("p", { class: "quiet" }, `${readable(step.piece)}: ${rank}`), ...all.map(([piece, share, chosen]) => makeBar(readable(piece), share, { chosen, text: share < 0.001 ? share.toExponential(0) : share.toFixed(3) })));
  };
  seen.steps.forEach((step, number) => {
    const fill = make("i");
    fill.style.width = `${(100 * step.probability).toFixed(1)}%`;
    const name = `${readable(step.piece)}, probability ${step.probability.toFixed(3)}`;
    const chip = make("button", { type: "button", class: step.probability < 0.5 ? "low" : "", "aria-label": name }, readable(step.piece), fill);
    chip.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && show(number));
    chip.addEventListener("focus", () => show(number));
    chip.addEventListener("click", () => show((kept = number)));
    chips.append(chip);
  });
  chips.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && show(kept));
  root.append(make("p", { class: "quiet" }, "The bar under each subword is its probability, given the source and what was said before; those below one half have another colour. Point at one to see what might have been said instead."), chips, rivals);
  show(kept);
}

// Where the nodes of the tree stand: [column, row] of each. The way taken is the first row; a branch has the first row
// below its parent that is free as far as it goes.
function layOutTree(nodes) {
  const children = nodes.map(() => []), roots = [];
  nodes.forEach((node, number) => (node.parent < 0 ? roots : children[node.parent]).push(number));
  const reach = nodes.map(() => 0), taken = nodes.map((node) => node.taken);
  const column = nodes.map(() => 0);
  nodes.forEach((node, number) => (column[number] = node.parent < 0 ? 0 : column[node.parent] + 1));
  for (let number = nodes.length - 1; number >= 0; number--) {
    reach[number] = Math.max(reach[number], column[number]);
    if (nodes[number].parent >= 0) reach[nodes[number].parent] = Math.max(reach[nodes[number].parent], reach[number]);
  }
  const heirFirst = (some) => [...some].sort((one, other) => taken[other] - taken[one] || reach[other] - reach[one] || nodes[other].total - nodes[one].total);
  const busy = [], row = nodes.map(() => 0);
  const free = (place, from, to) => !(busy[place] ?? []).some(([start, end]) => start <= to && from <= end);
  function place(number, below) {
    // A chain of heirs goes straight on.
    const chain = [number];
    while (children[chain.at(-1)].length) chain.push(heirFirst(children[chain.at(-1)])[0]);
    const from = column[number] - 1, to = column[chain.at(-1)];
    let own = below;
    while (!free(own, from, to)) own++;
    (busy[own] ??= []).push([from, to]);
    for (const one of chain) row[one] = own;
    // The last branches first: those before them go around outside.
    for (const one of [...chain].reverse()) heirFirst(children[one]).slice(1).forEach((branch) => place(branch, own + 1));
  }
  heirFirst(roots).forEach((root, order) => place(root, order ? 1 : 0));
  return nodes.map((_, number) => [column[number], row[number]]);
}

function showTree(root, seen) {
  const places = layOutTree(seen.tree);
  const columns = Math.max(...places.map(([column]) => column)) + 1, rows = Math.max(...places.map(([, row]) => row)) + 1;
  const widths = Array(columns).fill(0);
  const label = (node) => (node.fate === "ended" ? `⟨end⟩ ${node.score.toFixed(2)}` : readable(node.piece));
  const extent = (number) => measure(label(seen.tree[number]), 13, seen.tree[number].taken ? 600 : 400) + 10;
  places.forEach(([column], number) => (widths[column] = Math.max(widths[column], extent(number))));
  const gap = 22, step = 26, starts = [16];
  widths.forEach((width, column) => (starts[column + 1] = starts[column] + width + gap));
  const width = starts[columns], height = rows * step + 8;
  const svg = make("svg", { class: "tree", width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "the beam as a tree", "font-family": "system-ui, sans-serif" });
  const readout = make("p", { class: "quiet readout", "aria-live": "polite" });
  const middle = (row) => 4 + (row + 0.5) * step;
  const idle = () => (readout.textContent = "Point at a subword for its probability.");
  const groups = [], paths = make("g");
  svg.append(paths);
  seen.tree.forEach((node, number) => {
    const [column, row] = places[number];
    const [fromX, fromY] = node.parent < 0 ? [2, middle(0)] : [starts[places[node.parent][0]] + extent(node.parent), middle(places[node.parent][1])];
    const x = starts[column], y = middle(row), bend = Math.min(gap, x - fromX) / 2;
    paths[node.taken ? "append" : "prepend"](make("path", { class: node.taken ? "taken" : "", d: `M${fromX} ${fromY}L${x - 2 * bend} ${fromY}C${x - bend} ${fromY} ${x - bend} ${y} ${x} ${y}` }));
    const group = make("g", { class: `node fate-${node.fate}${node.taken ? " taken" : ""}`, "data-node": number }, make("rect", { x, y: y - 10, width: extent(number), height: 20, rx: 3 }), make("text", { x: x + 4, y, dy: ".35em" }, label(node)));
    const fate = { ended: `its score is ${node.score?.toFixed(3)}`, dropped: "dropped from the beam here", open: "still open when the search was done", on: "" }[node.fate];
    const said = [`${readable(node.piece)}: probability ${Math.exp(node.log_probability).toPrecision(3)}`, `log P so far ${node.total.toFixed(3)}`, node.taken ? "on the way taken" : "", fate].filter(Boolean).join("; ");
    group.append(make("title", {}, said));
    const show = () => {
      groups.forEach((other) => other.classList.toggle("on", other === group));
      readout.textContent = said;
    };
    group.addEventListener("pointerenter", show);
    group.addEventListener("click", show);
    groups.push(group);
    svg.append(group);
  });
  let at = -1;
  const scroll = make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "the beam; arrow keys go along it" }, svg);
  scroll.addEventListener("keydown", (event) => {
    const children = seen.tree.flatMap((node, number) => (node.parent === at ? [number] : []));
    const siblings = at < 0 ? [] : seen.tree.flatMap((node, number) => (node.parent === seen.tree[at].parent ? [number] : []));
    const next = {
      ArrowRight: children.find((child) => seen.tree[child].taken) ?? children[0], ArrowLeft: at < 0 ? undefined : seen.tree[at].parent,
      ArrowDown: siblings[siblings.indexOf(at) + 1], ArrowUp: siblings[siblings.indexOf(at) - 1],
    }[event.key];
    if (next === undefined || next < 0) return;
    event.preventDefault();
    at = next;
    groups[at].dispatchEvent(new Event("click"));
    groups[at].scrollIntoView({ block: "nearest", inline: "nearest" });
  });
  svg.addEventListener("pointerleave", () => {
    groups.forEach((group) => group.classList.remove("on"));
    idle();
  });
  idle();
  root.append(make("p", { class: "quiet" }, "All that lines of the beam have said. The way taken is the first row; ends carry their scores, the best of which was chosen."), scroll, readout);
}

function showWords(root, seen) {
  const words = { source: [], target: [] };
  const fill = (side, pieces, numbers) => {
    const texts = [];
    numbers.forEach((word, place) => (texts[word] = (texts[word] ?? "") + pieces[place]));
    const text = make("p", { class: "text", dir: "auto" });
    texts.forEach((word, number) => {
      const button = make("button", { type: "button", "data-word": number }, (word ?? "").replaceAll("\u2581", " ").trim() || "·");
      button.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && show(side, number));
      button.addEventListener("focus", () => show(side, number));
      button.addEventListener("click", () => show(side, number));
      words[side].push(button);
      text.append(button, " ");
    });
    text.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && show(null));
    return text;
  };
  function show(side, number) {
    for (const other of ["source", "target"]) {
      words[other].forEach((button, place) => {
        const linked = seen.alignment.some(([source, target]) => (side === "source" ? source === number && other === "target" && target === place : side === "target" && target === number && other === "source" && source === place));
        button.classList.toggle("on", other === side && place === number);
        button.classList.toggle("linked", linked);
      });
    }
  }
  root.append(
    make("p", { class: "quiet" }, "Which word of the source each word of the translation comes from, by the attention of one layer, the mean of its heads. Point at a word of either."),
    fill("source", seen.source.pieces.slice(0, -1), seen.source.words),
    fill("target", seen.target.said.slice(0, -1), seen.target.words),
  );
}
