// The page of a model's heads: `showHeads(root, found)`, where `found` is the output of `transduce heads --json`.

const NAMES = { encoder: "encoder", decoder: "decoder", cross: "encoder–decoder" };

function showHeads(root, found) {
  const cost = (head) => (head.loss_without === null ? null : head.loss_without - found.loss);
  const gain = (head) => (head.bleu_without === null ? null : head.bleu_without - found.bleu);
  const orders = {
    place: ["layer and head", null],
    ...(found.heads.some((head) => cost(head) !== null) ? { cost: ["loss without it", cost] } : {}),
    ...(found.heads.some((head) => gain(head) !== null) ? { gain: ["BLEU without it", gain] } : {}),
    ...Object.fromEntries(
      Object.entries(found.measures)
        .filter(([name]) => found.heads.some((head) => name in head.shares))
        .map(([name, text]) => [name, [text, (head) => head.shares[name] ?? null]]),
    ),
    evenness: ["evenness", (head) => head.evenness],
    distance: ["distance", (head) => (head.kind === "cross" ? null : head.distance)],
  };
  const state = {
    kind: "all",
    order: "cost" in orders ? "cost" : "end" in orders ? "end" : "place",
    down: true,
    role: "",
  };
  const controls = make("div", { class: "controls" }),
    overview = make("div", { class: "overview" }),
    cards = make("div", { class: "cards" });
  const bleu = found.bleu === null ? "" : `, BLEU ${found.bleu.toFixed(1)}`;
  root.append(
    make("h1", {}, `Heads of ${found.model}`),
    make(
      "p",
      { class: "quiet" },
      `${found.heads.length} heads over ${found.sentences.toLocaleString("en")} sentences, ${found.tokens.toLocaleString("en")} target tokens; loss ${found.loss.toFixed(4)}${bleu}. Alignments are compared with: ${found.alignment_reference}.`,
    ),
    make(
      "p",
      { class: "quiet" },
      "A bar is the share of a head's attention; the stroke across it is what even attention would give. A head's role is the share that exceeds its stroke the most, by at least .25.",
    ),
    controls,
    overview,
    cards,
  );
  const signed = (value, digits) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(digits).replace(/^0\./, ".");
  const show = (order, value) =>
    value === null
      ? "–"
      : order === "cost"
        ? signed(value, 3)
        : order === "gain"
          ? signed(value, 1)
          : order === "distance"
            ? value.toFixed(1)
            : percent(value);
  const named = (head) => `${NAMES[head.kind]} ${head.layer}.${head.head}`;
  const anchor = (head) => `${head.kind}-${head.layer}-${head.head}`;

  function change(changes) {
    Object.assign(state, changes);
    control();
    summarise();
    list();
  }

  function control() {
    const active = document.activeElement;
    const held =
      controls.contains(active) && active.name
        ? active.type === "radio"
          ? `[name="${active.name}"][value="${active.value}"]`
          : `[name="${active.name}"]`
        : null;
    const choose = (name, title, options, key) => {
      const select = make(
        "select",
        { name, "aria-label": title, onchange: () => change({ [key]: select.value }) },
        ...options.map(([value, text]) => make("option", { value, selected: value === state[key] }, text)),
      );
      return make("div", {}, make("span", { class: "label" }, title), select);
    };
    const roles = [...new Set(found.heads.map((head) => head.role))].sort();
    controls.replaceChildren(
      makeChoice("attention", "kind", [["all", "all"], ...Object.entries(NAMES)], state.kind, (kind) =>
        change({ kind }),
      ),
      choose(
        "order",
        "sorted by",
        Object.entries(orders).map(([name, [text]]) => [name, text]),
        "order",
      ),
      make(
        "div",
        {},
        make("span", { class: "label" }, "order"),
        make(
          "button",
          { type: "button", name: "down", onclick: () => change({ down: !state.down }) },
          state.down ? "largest first" : "smallest first",
        ),
      ),
      choose("role", "role", [["", "all"], ...roles.map((role) => [role, role])], "role"),
    );
    if (held) controls.querySelector(held)?.focus();
  }

  // Show a table of layers and heads for each kind, shaded by the value that the cards are sorted by.
  function summarise() {
    const order = state.order === "place" ? ("cost" in orders ? "cost" : "evenness") : state.order;
    const value = orders[order][1];
    const size = (head) => Math.abs(value(head) ?? 0);
    const most = Math.max(1e-9, ...found.heads.map(size));
    overview.replaceChildren();
    for (const kind of Object.keys(NAMES)) {
      const own = found.heads.filter((head) => head.kind === kind);
      if ((state.kind !== "all" && state.kind !== kind) || own.every((head) => value(head) === null)) continue;
      const table = make("table", {}, make("caption", {}, `${NAMES[kind]}: ${orders[order][0]}`));
      table.append(
        make(
          "tr",
          {},
          make("th"),
          ...own.filter((head) => head.layer === 1).map((head) => make("th", { scope: "col" }, String(head.head))),
        ),
      );
      for (const layer of [...new Set(own.map((head) => head.layer))]) {
        const row = make("tr", {}, make("th", { scope: "row" }, `layer ${layer}`));
        for (const head of own.filter((one) => one.layer === layer)) {
          const link = make(
            "a",
            {
              href: `#${anchor(head)}`,
              title: `${named(head)}: ${head.role}`,
              "aria-label": `${named(head)}: ${show(order, value(head))}`,
            },
            show(order, value(head)),
          );
          const share = Math.round(75 * (size(head) / most));
          link.style.background = `color-mix(in srgb, ${value(head) < 0 && order !== "gain" ? "var(--head-2)" : "var(--head-1)"} ${share}%, var(--card))`;
          link.style.color = "var(--text)";
          row.append(make("td", {}, link));
        }
        table.append(row);
      }
      overview.append(make("div", { class: "scroll" }, table));
    }
  }

  function list() {
    const value = orders[state.order][1];
    const chosen = found.heads.filter(
      (head) => (state.kind === "all" || head.kind === state.kind) && (!state.role || head.role === state.role),
    );
    const sign = state.down ? -1 : 1;
    if (value)
      chosen.sort(
        (one, other) =>
          (value(one) === null) - (value(other) === null) || sign * ((value(one) ?? 0) - (value(other) ?? 0)),
      );
    else if (!state.down) chosen.reverse();
    cards.replaceChildren(...chosen.map(makeCard));
  }

  function makeCard(head) {
    const card = make(
      "article",
      { id: anchor(head), "data-head": anchor(head) },
      make("h3", {}, named(head), make("em", {}, head.role)),
    );
    for (const [name, text] of Object.entries(found.measures)) {
      if (!(name in head.shares)) continue;
      const fill = make("i"),
        chance = make("u");
      fill.style.width = `${(100 * Math.min(1, head.shares[name])).toFixed(1)}%`;
      chance.style.left = `${(100 * Math.min(1, head.even[name])).toFixed(1)}%`;
      const lead =
        name === head.role ||
        (head.role === "aligned" && name === "aligned_after" && head.shares.aligned_after > head.shares.aligned);
      const hint = `${text}: ${head.shares[name].toFixed(3)}, even attention ${head.even[name].toFixed(3)}`;
      card.append(
        make(
          "div",
          { class: lead ? "bar lead" : "bar", title: hint },
          make("span", {}, text),
          make("div", { class: "track" }, fill, chance),
          make("b", {}, percent(head.shares[name])),
        ),
      );
    }
    const numbers = [`entropy ${head.entropy.toFixed(2)} (${percent(head.evenness)} of the maximum)`];
    if (head.kind !== "cross") numbers.push(`distance ${head.distance.toFixed(1)}`);
    if (cost(head) !== null) numbers.push(`loss without it ${signed(cost(head), 4)}`);
    if (gain(head) !== null) numbers.push(`BLEU without it ${signed(gain(head), 1)}`);
    card.append(make("p", { class: "numbers" }, numbers.join("; ")));
    return card;
  }

  change({});
}
