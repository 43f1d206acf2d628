// The beam of one sentence as a tree: `showTree(root, seen)`.

// Return the [column, row] of each node. The path taken is the first row; a branch gets the first row below its parent
// that is free along its whole length.
function layOutTree(nodes) {
  const children = nodes.map(() => []),
    roots = [];
  nodes.forEach((node, number) => (node.parent < 0 ? roots : children[node.parent]).push(number));
  const reach = nodes.map(() => 0),
    taken = nodes.map((node) => node.taken);
  const column = nodes.map(() => 0);
  nodes.forEach((node, number) => (column[number] = node.parent < 0 ? 0 : column[node.parent] + 1));
  for (let number = nodes.length - 1; number >= 0; number--) {
    reach[number] = Math.max(reach[number], column[number]);
    if (nodes[number].parent >= 0) reach[nodes[number].parent] = Math.max(reach[nodes[number].parent], reach[number]);
  }
  const heirFirst = (some) =>
    [...some].sort(
      (one, other) => taken[other] - taken[one] || reach[other] - reach[one] || nodes[other].total - nodes[one].total,
    );
  const busy = [],
    row = nodes.map(() => 0);
  const free = (place, from, to) => !(busy[place] ?? []).some(([start, end]) => start <= to && from <= end);
  function place(number, below) {
    // A node's first heir continues its row, and so on to the chain's end.
    const chain = [number];
    while (children[chain.at(-1)].length) chain.push(heirFirst(children[chain.at(-1)])[0]);
    const from = column[number] - 1,
      to = column[chain.at(-1)];
    let own = below;
    while (!free(own, from, to)) own++;
    (busy[own] ??= []).push([from, to]);
    for (const one of chain) row[one] = own;
    // Place the last branches first; earlier ones then go around them, further out.
    for (const one of [...chain].reverse())
      heirFirst(children[one])
        .slice(1)
        .forEach((branch) => place(branch, own + 1));
  }
  heirFirst(roots).forEach((root, order) => place(root, order ? 1 : 0));
  return nodes.map((_, number) => [column[number], row[number]]);
}

function showTree(root, seen) {
  const places = layOutTree(seen.tree);
  const columns = Math.max(...places.map(([column]) => column)) + 1,
    rows = Math.max(...places.map(([, row]) => row)) + 1;
  const widths = Array(columns).fill(0);
  const label = (node) => (node.fate === "ended" ? `⟨end⟩ ${node.score.toFixed(2)}` : readable(node.piece));
  const extent = (number) => measure(label(seen.tree[number]), 13, seen.tree[number].taken ? 600 : 400) + 10;
  places.forEach(([column], number) => (widths[column] = Math.max(widths[column], extent(number))));
  const gap = 22,
    step = 26,
    starts = [16];
  widths.forEach((width, column) => (starts[column + 1] = starts[column] + width + gap));
  const width = starts[columns],
    height = rows * step + 8;
  const svg = make("svg", {
    class: "tree",
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    role: "group",
    "aria-label": "the beam as a tree",
    "font-family": "system-ui, sans-serif",
  });
  const readout = make("p", { class: "quiet readout", "aria-live": "polite" });
  const middle = (row) => 4 + (row + 0.5) * step;
  const idle = () => (readout.textContent = "Point at a subword for its probability.");
  const groups = [],
    paths = make("g");
  svg.append(paths);
  seen.tree.forEach((node, number) => {
    const [column, row] = places[number];
    const [fromX, fromY] =
      node.parent < 0
        ? [2, middle(0)]
        : [starts[places[node.parent][0]] + extent(node.parent), middle(places[node.parent][1])];
    const x = starts[column],
      y = middle(row),
      bend = Math.min(gap, x - fromX) / 2;
    paths[node.taken ? "append" : "prepend"](
      make("path", {
        class: node.taken ? "taken" : "",
        d: `M${fromX} ${fromY}L${x - 2 * bend} ${fromY}C${x - bend} ${fromY} ${x - bend} ${y} ${x} ${y}`,
      }),
    );
    const group = make(
      "g",
      { class: `node fate-${node.fate}${node.taken ? " taken" : ""}`, "data-node": number },
      make("rect", { x, y: y - 10, width: extent(number), height: 20, rx: 3 }),
      make("text", { x: x + 4, y, dy: ".35em" }, label(node)),
    );
    const fate = {
      ended: `its score is ${node.score?.toFixed(3)}`,
      dropped: "dropped from the beam here",
      open: "still open when the search ended",
      on: "",
    }[node.fate];
    const said = [
      `${readable(node.piece)}: probability ${Math.exp(node.log_probability).toPrecision(3)}`,
      `log P so far ${node.total.toFixed(3)}`,
      node.taken ? "on the path to the translation" : "",
      fate,
    ]
      .filter(Boolean)
      .join("; ");
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
  const scroll = make(
    "div",
    { class: "scroll", tabindex: 0, role: "group", "aria-label": "the beam; arrow keys go along it" },
    svg,
  );
  scroll.addEventListener("keydown", (event) => {
    const children = seen.tree.flatMap((node, number) => (node.parent === at ? [number] : []));
    const siblings =
      at < 0 ? [] : seen.tree.flatMap((node, number) => (node.parent === seen.tree[at].parent ? [number] : []));
    const next = {
      ArrowRight: children.find((child) => seen.tree[child].taken) ?? children[0],
      ArrowLeft: at < 0 ? undefined : seen.tree[at].parent,
      ArrowDown: siblings[siblings.indexOf(at) + 1],
      ArrowUp: siblings[siblings.indexOf(at) - 1],
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
  root.append(
    make(
      "p",
      { class: "quiet" },
      "All hypotheses in the beam. The first row is the path to the translation; ends carry their scores, the best of which was chosen.",
    ),
    scroll,
    readout,
  );
}
