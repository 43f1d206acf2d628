// Drawing for all pages: elements, choices, and the two views of attention.

const SVG = "http://www.w3.org/2000/svg";
const COLOURS = 8;

// Make an element with attributes, a class, listeners (on…) and children; text is always text, never markup.
function make(name, given = {}, ...children) {
  const svg = ["svg", "g", "line", "path", "rect", "text", "title"].includes(name);
  const element = svg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(given)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key.startsWith("--")) element.style.setProperty(key, value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

const colourOf = (head) => `var(--head-${head % COLOURS})`;

// The present value of a colour variable, light or dark, for canvases, which know no variables.
const resolve = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A subword as people see it: bare if it begins a word, with a dot before it if it continues one.
function readable(piece) {
  if (/^⟨.*⟩$/.test(piece)) return piece;
  const text = piece.replace(/^\u2581/, "").replaceAll("\u2581", "␣");
  return piece.startsWith("\u2581") ? text || "␣" : `·${text}`;
}

// Words in which characters are spelled in bytes, such as <0xE2>, with these decoded.
function spell(text) {
  const decode = (bytes) => new TextDecoder().decode(Uint8Array.from(bytes.match(/[0-9A-F]{2}(?=>)/g), (byte) => parseInt(byte, 16)));
  return text.replace(/(?:<0x[0-9A-F]{2}>)+/g, decode);
}

const percent = (share) => (share >= 0.995 ? "1.00" : share < 0.005 ? "<.01" : share.toFixed(2).replace(/^0/, ""));

// A bar with its name before it and its number after it.
function makeBar(name, share, { colour, chosen = false, text = percent(share), most = 1 } = {}) {
  const fill = make("i");
  fill.style.width = `${(100 * Math.min(1, share / most)).toFixed(1)}%`;
  const bar = make(
    "div",
    { class: chosen ? "bar chosen" : "bar" },
    make("span", { title: name }, name),
    fill,
    make("b", {}, text),
  );
  if (colour) bar.style.setProperty("--colour", colour);
  return bar;
}

// Buttons of which one is pressed: radio inputs, so that the browser handles the keyboard.
function makeChoice(title, name, options, chosen, choose) {
  const group = make("fieldset", {}, make("legend", {}, title));
  const row = make("div", { class: "choice" });
  for (const [value, text] of options) {
    const input = make("input", { type: "radio", name, value, onchange: () => choose(value) });
    input.checked = String(value) === String(chosen);
    row.append(make("label", {}, input, make("span", {}, text)));
  }
  group.append(row);
  return group;
}

const measure = (() => {
  const context = document.createElement("canvas").getContext("2d");
  return (text, size, weight = 400) => {
    context.font = `${weight} ${size}px system-ui, sans-serif`;
    return context.measureText(text).width;
  };
})();

// The text, cut short with … if it is too wide.
function fit(text, size, width) {
  if (measure(text, size) <= width) return text;
  const letters = [...text];
  while (letters.length > 1 && measure(letters.join("") + "…", size) > width) letters.pop();
  return letters.join("") + "…";
}

// Draw lines between two columns of words, as in the paper's Figures 3 to 5, for `weights[head][query][key]`. Calls
// `touch(side, index)` for a word pointed at and `pin` for one clicked. Returns the drawing, and `show(focus, pinned)`
// to change what is lit.
function drawLines({ width, queries, keys, weights, heads, touch, pin }) {
  const rows = Math.max(queries.length, keys.length);
  const [step, size] = rows <= 30 ? [24, 14] : rows <= 50 ? [19, 13] : [16, 12];
  const column = (words) => Math.min(width * 0.34, Math.max(...words.map((word) => measure(word, size))) + 12);
  const left = column(queries),
    right = width - column(keys);
  const height = rows * step + 8;
  const middle = (index) => 4 + (index + 0.5) * step;
  const lines = make("g", { class: "lines" });
  const svg = make(
    "svg",
    {
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      role: "group",
      "aria-label": "lines of attention; arrow keys go from word to word",
      "font-family": "system-ui, sans-serif",
      "font-size": size,
    },
    lines,
  );
  const sides = { query: [], key: [] };
  for (const side of ["query", "key"]) {
    const x = side === "query" ? 0 : right,
      wide = side === "query" ? left : width - right;
    (side === "query" ? queries : keys).forEach((word, index) => {
      const shown = fit(word, size, wide - 10);
      const anchor =
        side === "query" ? { x: left - 6, "text-anchor": "end" } : { x: right + 6, "text-anchor": "start" };
      const group = make(
        "g",
        {
          class: "word",
          role: "button",
          tabindex: index ? -1 : 0,
          "data-side": side,
          "data-index": index,
          "aria-pressed": "false",
          "aria-label": `${word}: ${side === "query" ? "what it attends to" : "what attends to it"}`,
        },
        make("rect", { class: "box", x, y: middle(index) - step / 2, width: wide, height: step, rx: 3 }),
        make("g", { class: "shares" }),
        make("text", { ...anchor, y: middle(index), dy: ".35em" }, shown),
        make("title", {}, word),
      );
      group.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && touch(side, index));
      group.addEventListener("focus", () => group.matches(":focus-visible") && touch(side, index));
      group.addEventListener("click", () => pin(side, index));
      sides[side].push(group);
      svg.append(group);
    });
  }
  svg.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && touch(null));
  svg.addEventListener("keydown", (event) => {
    const here = event.target.closest(".word");
    if (!here) return;
    const { side } = here.dataset,
      index = Number(here.dataset.index);
    const other = side === "query" ? "key" : "query";
    const go = (to, place) => {
      const next = sides[to][Math.max(0, Math.min(sides[to].length - 1, place))];
      for (const word of sides[to]) word.setAttribute("tabindex", word === next ? 0 : -1);
      next.focus();
    };
    const act = {
      ArrowUp: () => go(side, index - 1),
      ArrowDown: () => go(side, index + 1),
      Home: () => go(side, 0),
      End: () => go(side, Infinity),
      ArrowLeft: () => go("query", side === "query" ? index : Math.min(index, sides[other].length - 1)),
      ArrowRight: () => go("key", index),
      Enter: () => pin(side, index),
      " ": () => pin(side, index),
      Escape: () => touch(null, undefined, true),
    }[event.key];
    if (act) {
      event.preventDefault();
      act();
    }
  });

  const weight = (head, side, one, other) => (side === "query" ? weights[head][one][other] : weights[head][other][one]);
  function addLine(head, query, key, least = 0) {
    const share = weights[head][query][key];
    // The lines of the heads are side by side, so that none hides another.
    const beside = (heads.indexOf(head) - (heads.length - 1) / 2) * Math.min(2.2, (step - 6) / heads.length);
    const line = make("line", {
      x1: left + 2,
      x2: right - 2,
      y1: (middle(query) + beside).toFixed(2),
      y2: (middle(key) + beside).toFixed(2),
      "stroke-width": (0.7 + 2.8 * share).toFixed(2),
      "stroke-opacity": Math.min(1, least + (1 - least) * share).toFixed(3),
      "data-head": head,
    });
    line.style.stroke = colourOf(head);
    lines.append(line);
  }
  function show(focus, pinned) {
    lines.replaceChildren();
    const other = focus && (focus.side === "query" ? "key" : "query");
    for (const head of heads) {
      if (focus) {
        sides[other].forEach((_, index) => {
          const pair = focus.side === "query" ? [focus.index, index] : [index, focus.index];
          if (weights[head][pair[0]][pair[1]] >= 0.01) addLine(head, ...pair, 0.15);
        });
      } else {
        weights[head].forEach((row, query) => row.forEach((share, key) => share >= 0.04 && addLine(head, query, key)));
      }
    }
    for (const side of ["query", "key"]) {
      const x = side === "query" ? 0 : right,
        wide = (side === "query" ? left : width - right) - 4;
      sides[side].forEach((group, index) => {
        const on = Boolean(focus && focus.side === side && focus.index === index);
        group.classList.toggle("on", on);
        group.setAttribute("aria-pressed", String(on && pinned));
        // Behind each word of the other side: a stripe for each head, as strong as its weight.
        const shares = group.querySelector(".shares");
        shares.replaceChildren();
        if (side !== other) return;
        heads.forEach((head, place) => {
          const share = weight(head, focus.side, focus.index, index);
          if (share < 0.01) return;
          const stripe = wide / heads.length;
          const cell = make("rect", {
            x: (x + 2 + place * stripe).toFixed(2),
            y: middle(index) - step / 2 + 1,
            width: stripe.toFixed(2),
            height: step - 2,
            "fill-opacity": (0.85 * share).toFixed(3),
          });
          cell.style.fill = colourOf(head);
          shares.append(cell);
        });
      });
    }
  }
  return { element: svg, show };
}

// Draw one head as a heat map, with words along its sides if `labelled`. Calls `point([query, key] or null, click)` for
// the cell pointed at or clicked.
function drawMap({ width, queries, keys, table, head, labelled, point }) {
  const [size, least] = Math.max(queries.length, keys.length) > 50 ? [10, 11] : [12, 14];
  const most = Math.min(150, width * 0.3);
  const label = (words) => (labelled ? Math.min(most, Math.max(...words.map((word) => measure(word, size))) + 8) : 0);
  const left = label(queries),
    top = label(keys);
  const room = (width - left - 1) / keys.length;
  const cell = labelled ? Math.max(least, Math.min(30, room)) : room;
  const tall = labelled ? cell : Math.min(cell, width / queries.length);
  const wide = left + keys.length * cell + 1,
    high = top + queries.length * tall + 1;
  const canvas = make("canvas", {
    tabindex: 0,
    role: "img",
    "aria-label": `heat map of head ${head + 1}; arrow keys go from cell to cell`,
  });
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(wide * scale);
  canvas.height = Math.round(high * scale);
  canvas.style.width = `${wide}px`;
  canvas.style.height = `${high}px`;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.fillStyle = resolve("--card");
  context.fillRect(left, top, wide - left, high - top);
  context.fillStyle = resolve(`--head-${head % COLOURS}`);
  table.forEach((row, query) =>
    row.forEach((share, key) => {
      if (share < 0.004) return;
      context.globalAlpha = Math.min(1, share);
      context.fillRect(left + key * cell, top + query * tall, cell + 0.3, tall + 0.3);
    }),
  );
  context.globalAlpha = 1;
  if (labelled) {
    context.fillStyle = resolve("--text");
    context.font = `${size}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    context.textAlign = "right";
    queries.forEach((word, index) => context.fillText(fit(word, size, left - 8), left - 5, top + (index + 0.5) * tall));
    context.textAlign = "left";
    keys.forEach((word, index) => {
      context.save();
      context.translate(left + (index + 0.5) * cell, top - 5);
      context.rotate(-Math.PI / 2);
      context.fillText(fit(word, size, top - 8), 0, 0);
      context.restore();
    });
  }
  const mark = make("div", { class: "mark" });
  mark.hidden = true;
  let cursor = null;
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const key = Math.floor((event.clientX - box.left - left) / cell),
      query = Math.floor((event.clientY - box.top - top) / tall);
    return key >= 0 && query >= 0 && key < keys.length && query < queries.length ? [query, key] : null;
  };
  canvas.addEventListener("pointermove", (event) => event.pointerType === "mouse" && point(at(event), false));
  canvas.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && point(null, false));
  canvas.addEventListener("click", (event) => point(at(event), true));
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!move) return;
    event.preventDefault();
    const within = (place, size) => Math.max(0, Math.min(size - 1, place));
    point(
      cursor ? [within(cursor[0] + move[0], queries.length), within(cursor[1] + move[1], keys.length)] : [0, 0],
      false,
    );
  });
  function show(focus) {
    mark.hidden = !focus;
    cursor = focus && focus.key !== undefined ? [focus.index, focus.key] : null;
    if (!focus) return;
    const across = focus.side === "query" && !cursor,
      down = focus.side === "key";
    const box = {
      left: left + (across ? 0 : (down ? focus.index : focus.key) * cell),
      width: across ? keys.length * cell : cell,
      top: top + (down ? 0 : focus.index * tall),
      height: down ? queries.length * tall : tall,
    };
    for (const [name, value] of Object.entries(box)) mark.style[name] = `${value}px`;
  }
  return { element: make("div", { class: "map" }, canvas, mark), show };
}

// Save a drawing as a file: SVG with its colours written out, or PNG at twice its size.
function saveDrawing(svg, name, kind) {
  const copy = svg.cloneNode(true);
  const originals = svg.querySelectorAll("*"),
    copies = copy.querySelectorAll("*");
  originals.forEach((element, index) => {
    const style = getComputedStyle(element);
    for (const property of ["fill", "stroke"]) copies[index].setAttribute(property, style[property]);
    copies[index].removeAttribute("style");
    copies[index].removeAttribute("tabindex");
  });
  copy.setAttribute("xmlns", SVG);
  const text = new XMLSerializer().serializeToString(copy);
  if (kind === "svg") return saveFile(new Blob([text], { type: "image/svg+xml" }), `${name}.svg`);
  const image = new Image();
  image.onload = () => {
    const canvas = make("canvas");
    canvas.width = 2 * svg.width.baseVal.value;
    canvas.height = 2 * svg.height.baseVal.value;
    const context = canvas.getContext("2d");
    context.fillStyle = resolve("--back");
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => saveFile(blob, `${name}.png`));
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
}

function saveFile(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
