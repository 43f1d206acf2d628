// The page of one sentence: `showSentence(root, seen)`, where `seen` is the output of `transduce show --json`.

function showSentence(root, seen) {
  const sections = [
    ["Attention", showAttention],
    ["Probabilities", showSteps],
    ["Beam", showTree],
    ["Words", showWords],
  ].filter(([title]) => title !== "Beam" || seen.tree.length);
  const { target } = seen;
  const how = target.given
    ? "the translation was given"
    : target.complete
      ? "found by the search"
      : "cut off at the maximum length";
  root.append(
    make("h1", { dir: "auto" }, seen.source.text),
    make("p", { class: "translation", dir: "auto" }, target.text),
    make(
      "p",
      { class: "quiet" },
      `${seen.model}; ${how}; log P = ${target.log_probability.toFixed(3)}. A dot before a subword: it continues a word.`,
    ),
    make("nav", {}, ...sections.map(([title]) => make("a", { href: `#${title.toLowerCase()}` }, title))),
  );
  for (const [title, show] of sections) {
    const section = make("section", { id: title.toLowerCase() }, make("h2", {}, title));
    root.append(section);
    show(section, seen);
  }
}

function showSteps(root, seen) {
  const rivals = make("div", { class: "rivals", "aria-live": "polite" });
  const chips = make("div", { class: "chips" });
  // The least certain token is shown first.
  let kept = seen.steps.reduce(
    (least, step, number) => (step.probability < seen.steps[least].probability ? number : least),
    0,
  );
  const show = (number) => {
    [...chips.children].forEach((chip, place) => chip.classList.toggle("on", place === number));
    const step = seen.steps[number];
    const all = [
      [step.piece, step.probability, true],
      ...step.rivals.map(([piece, share]) => [piece, share, false]),
    ].sort((one, other) => other[1] - one[1]);
    const rank =
      step.rank === 1
        ? "the most probable"
        : step.rank
          ? `number ${step.rank} of all`
          : `not among the first ${step.rivals.length + 1}`;
    rivals.replaceChildren(
      make("p", { class: "quiet" }, `${readable(step.piece)}: ${rank}`),
      ...all.map(([piece, share, chosen]) =>
        makeBar(readable(piece), share, { chosen, text: share < 0.001 ? share.toExponential(0) : share.toFixed(3) }),
      ),
    );
  };
  seen.steps.forEach((step, number) => {
    const fill = make("i");
    fill.style.width = `${(100 * step.probability).toFixed(1)}%`;
    const name = `${readable(step.piece)}, probability ${step.probability.toFixed(3)}`;
    const chip = make(
      "button",
      { type: "button", class: step.probability < 0.5 ? "low" : "", "aria-label": name },
      readable(step.piece),
      fill,
    );
    chip.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && show(number));
    chip.addEventListener("focus", () => show(number));
    chip.addEventListener("click", () => show((kept = number)));
    chips.append(chip);
  });
  chips.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && show(kept));
  root.append(
    make(
      "p",
      { class: "quiet" },
      "The bar under each subword is its probability, given the source and the subwords before it; those below one half have another colour. Point at one to see the alternatives.",
    ),
    chips,
    rivals,
  );
  show(kept);
}

function showWords(root, seen) {
  const words = { source: [], target: [] };
  const fill = (side, pieces, numbers) => {
    const texts = [];
    numbers.forEach((word, place) => (texts[word] = (texts[word] ?? "") + pieces[place]));
    const text = make("p", { class: "text", dir: "auto" });
    texts.forEach((word, number) => {
      const button = make(
        "button",
        { type: "button", "data-word": number },
        spell((word ?? "").replaceAll("\u2581", " ")).trim() || "·",
      );
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
        const linked = seen.alignment.some(([source, target]) =>
          side === "source"
            ? source === number && other === "target" && target === place
            : side === "target" && target === number && other === "source" && source === place,
        );
        button.classList.toggle("on", other === side && place === number);
        button.classList.toggle("linked", linked);
      });
    }
  }
  root.append(
    make(
      "p",
      { class: "quiet" },
      "The source word that each word of the translation comes from, by attention. Point at a word on either side.",
    ),
    fill("source", seen.source.pieces.slice(0, seen.source.words.length), seen.source.words),
    fill("target", seen.target.said.slice(0, -1), seen.target.words),
  );
}
