// The attention of one sentence: a choice of kind, layer, heads and view, and what the word pointed at attends to.
// `showAttention(root, seen)`; `seen` is the output of `transduce show --json`, and may have `roles`: the role of each
// head, by kind and layer.

const KINDS = [
  ["encoder", "encoder"],
  ["decoder", "decoder"],
  ["cross", "encoder–decoder"],
];
const EXPLAIN = {
  encoder: (query, key) => `${query}: the source tokens; ${key}: the source tokens they attend to.`,
  decoder: (query, key) => `${query}: the decoder's input; ${key}: the tokens it attends to, up to itself.`,
  cross: (query, key) => `${query}: the steps that produce the translation; ${key}: the source tokens they attend to.`,
};

function showAttention(root, seen) {
  const state = {
    kind: "encoder",
    layer: seen.attention.encoder.length - 1,
    view: "lines",
    heads: null,
    focus: null,
    pinned: null,
  };
  const count = () => seen.attention[state.kind][0].length;
  const controls = make("div", { class: "controls" });
  const note = make("p", { class: "quiet" });
  const plot = make("div", { class: "plot" });
  const detail = make("aside", { class: "detail", "aria-live": "polite", "aria-label": "what the word attends to" });
  root.append(controls, note, make("div", { class: "figure" }, plot, detail));
  let drawn = [];

  const source = seen.source.pieces.map(readable),
    taken = seen.target.taken.map(readable),
    said = seen.target.said.map(readable);
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
    // All controls are made anew; the one that had the keyboard focus gets it back.
    const active = document.activeElement;
    const held = controls.contains(active) && active.name ? `[name="${active.name}"][value="${active.value}"]` : null;
    const heads = make("div", { class: "choice" });
    for (let head = 0; head < count(); head++) {
      const input = make("input", { type: "checkbox", name: "head", value: head, onchange: () => toggle(head) });
      input.checked = state.heads.has(head);
      const role = roleOf(head);
      heads.append(
        make(
          "label",
          { class: "head", "--colour": colourOf(head), title: role ? `head ${head + 1}: ${role}` : `head ${head + 1}` },
          input,
          make("span", {}, String(head + 1)),
        ),
      );
    }
    heads.append(
      make("button", { type: "button", name: "heads", value: "all", onclick: () => change({ heads: null }) }, "all"),
      make(
        "button",
        { type: "button", name: "heads", value: "none", onclick: () => change({ heads: new Set() }) },
        "none",
      ),
    );
    controls.replaceChildren(
      makeChoice("attention", "kind", KINDS, state.kind, (kind) => change({ kind })),
      makeChoice(
        "layer",
        "layer",
        seen.attention[state.kind].map((_, layer) => [layer, String(layer + 1)]),
        state.layer,
        (layer) => change({ layer }),
      ),
      makeChoice(
        "view",
        "view",
        [
          ["lines", "lines"],
          ["map", "heat map"],
        ],
        state.view,
        (view) => change({ view }),
      ),
      make("fieldset", {}, make("legend", {}, "heads"), heads),
    );
    const roles = [...new Set(Array.from({ length: count() }, (_, head) => roleOf(head)).filter(Boolean))].sort();
    if (roles.length) {
      const select = make(
        "select",
        {
          name: "role",
          "aria-label": "heads by role",
          onchange: () =>
            select.value &&
            change({ heads: new Set([...Array(count()).keys()].filter((head) => roleOf(head) === select.value)) }),
        },
        make("option", { value: "" }, "by role …"),
        ...roles.map((role) => make("option", { value: role }, role)),
      );
      controls.append(make("div", {}, make("span", { class: "label" }, "role"), select));
    }
    const save = (kind) =>
      make(
        "button",
        {
          type: "button",
          name: "save",
          value: kind,
          onclick: () => saveDrawing(plot.querySelector("svg"), `${state.kind}-${state.layer + 1}`, kind),
        },
        kind.toUpperCase(),
      );
    if (state.view === "lines")
      controls.append(
        make(
          "div",
          {},
          make("span", { class: "label" }, "save"),
          make("div", { class: "choice" }, save("svg"), save("png")),
        ),
      );
    if (held) controls.querySelector(held)?.focus();
    const lines = state.view === "lines";
    note.textContent = [
      EXPLAIN[state.kind](...(lines ? ["Left", "right"] : ["Rows", "columns"])),
      lines
        ? "A line's strength is its weight; weights below .04 are hidden until you choose a word."
        : "A cell's strength is its weight.",
    ].join(" ");
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
      plot.replaceChildren(make("p", { class: "quiet" }, "No head selected."));
    } else if (state.view === "lines") {
      drawn = [drawLines({ width, queries, keys, weights, heads: chosen(), touch, pin })];
      plot.replaceChildren(drawn[0].element);
    } else {
      const one = state.heads.size === 1;
      const columns = one ? 1 : Math.max(2, Math.min(state.heads.size, Math.floor(width / 220)));
      const maps = make("div", { class: "maps" });
      maps.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
      for (const head of chosen()) {
        const map = drawMap({
          width: (width - 16 * (columns - 1)) / columns,
          queries,
          keys,
          table: weights[head],
          head,
          labelled: one,
          point,
        });
        drawn.push(map);
        const role = roleOf(head);
        maps.append(
          make(
            "figure",
            { "--colour": colourOf(head) },
            make("figcaption", {}, `head ${head + 1}${role ? `: ${role}` : ""}`),
            make("div", { class: "scroll" }, map.element),
          ),
        );
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
    for (const one of drawn)
      one.show(state.focus, Boolean(state.pinned) && JSON.stringify(state.pinned) === JSON.stringify(state.focus));
    detail.replaceChildren();
    detail.classList.toggle("idle", !state.focus);
    const [queries, keys] = labels();
    if (!state.focus) {
      detail.append(
        make(
          "p",
          { class: "quiet" },
          "Point at a word to see what it attends to in each head; click or tap to keep it. With the keyboard: Tab, arrow keys, Enter, Escape.",
        ),
      );
      return;
    }
    const { side, index, key } = state.focus;
    const [own, others] = side === "query" ? [queries, keys] : [keys, queries];
    const groups = make("div", { class: "groups" });
    detail.append(
      make("h3", { dir: "auto" }, side === "query" ? `${own[index]} attends to` : `${own[index]} is attended to by`),
      groups,
    );
    const weights = seen.attention[state.kind][state.layer];
    for (const head of chosen()) {
      const shares = others.map((word, place) => [
        side === "query" ? weights[head][index][place] : weights[head][place][index],
        word,
        place,
      ]);
      const best = [...shares]
        .sort((one, other) => other[0] - one[0])
        .slice(0, state.heads.size > 4 ? 2 : 4)
        .filter(([share], place) => place === 0 || share >= 0.02);
      if (key !== undefined && !best.some(([, , place]) => place === key)) best.push(shares[key]);
      const role = roleOf(head);
      groups.append(
        make(
          "div",
          { "--colour": colourOf(head) },
          make("div", { class: "who" }, `head ${head + 1}${role ? `: ${role}` : ""}`),
          ...best.map(([share, word, place]) => makeBar(word, share, { chosen: place === key })),
        ),
      );
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
