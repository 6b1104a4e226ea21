// One image: its labels, their certified radii as bars, and what its draws return.
const MOST_CEILINGS = 4;
const OWN_WORD = data.labelled ? "true" : "predicted";
const DRAWS_WORD = data.exact ? "bands" : "draws";
const OTHER_WORD = data.labelled ? "wrong" : "other";
const unseen = (text) => element("span", { class: "unseen" }, text);
const reaches = (stored) => radiusOf(stored) >= currentRadius();

function certifiedSize(image) {
  return image.radii[state.method].filter(reaches).length;
}

// The most other labels that can be returned; null if no number is proved.
function certifiedCeiling(image) {
  const most = image.ceilings[state.method].findIndex(reaches);
  return most < 0 ? null : most;
}

// Radii of floors decrease, so sizes that are not certified come last, in one row.
function floorRows(radii) {
  const proved = radii.filter((radius) => radius > -Infinity);
  const rows = proved.map((radius, index) => ({ size: index + 1, radius }));
  if (proved.length < radii.length) rows.push({ size: span(proved.length + 1, radii.length), radius: -Infinity });
  return rows;
}

// Radii of ceilings increase: sizes that are not certified come first, in one row, then the first few new radii.
function ceilingRows(radii) {
  if (!radii.length) return [];
  const first = radii.findIndex((radius) => radius > -Infinity);
  if (first < 0) return [{ size: span(0, radii.length - 1), radius: -Infinity }];
  const news = radii.map((radius, size) => ({ size, radius })).filter(({ size, radius }) => size >= first && radius !== radii[size - 1]);
  return [...(first ? [{ size: span(0, first - 1), radius: -Infinity }] : []), ...news.slice(0, MOST_CEILINGS)];
}

const span = (from, to) => (from < to ? `${from}–${to}` : `${from}`);

function drawFraction(hits, draws) {
  const percents = Math.round((100 * hits) / draws);
  return percents ? `${percents}\u00a0%` : "<1\u00a0%";
}

function barRow(name, radius, longest, none = radiusText(-Infinity)) {
  const track = element("span", { class: "track", "aria-hidden": "true" });
  if (radius > -Infinity) track.append(element("span", { class: radius === Infinity ? "fill endless" : "fill" }));
  track.style.setProperty("--fraction", Math.min(1, Math.max(0, radius / longest)));
  const value = element("span", { class: "value" }, radius === -Infinity ? none : radiusText(radius));
  return { radius, row: element("li", radius === -Infinity ? { class: "unproved" } : {}, element("span", { class: "size" }, ...name), track, value) };
}

// The radius of each label. If j labels reach a radius, one of them is shown with no more than that of j labels together,
// which may be smaller since it splits α: a card does not contradict itself, and a smaller radius is proved as well.
function ownRadii(image) {
  const together = image.radii[state.method].map(radiusOf);
  const own = image.own.map(radiusOf);
  own.map((radius, index) => [radius, index]).sort(([a], [b]) => b - a).forEach(([radius, index], rank) => {
    own[index] = Math.min(radius, together[rank] ?? -Infinity);
  });
  return own;
}

class Card {
  constructor(image, longest) {
    this.image = image;
    this.longest = longest;
    this.count = element("p", { class: "count" });
    this.truth = element("ul", { class: "true", "aria-label": "True labels" });
    this.proofs = element("div", { class: "proofs" });
    this.ownBars = data.labelled ? [] : this.makeOwnBars();
    const body = element("div", { class: "body" }, element("h3", { title: image.id }, image.id), ...this.draws(), this.count, ...this.labels());
    this.root = element("article", { class: "card" }, element("div", { class: "top" }, this.thumbnail(), body), ...this.ownList(), this.proofs, this.prediction());
    this.root.dataset.id = image.id;
  }

  thumbnail() {
    if (!this.image.thumbnail) return element("div", { class: "absent" }, "no image file");
    const [uri, width, height] = this.image.thumbnail;
    const small = Math.max(width, height) < 100 ? "small" : null;
    this.shown = element("img", { src: uri, alt: "", loading: "lazy", decoding: "async", class: small });
    return this.shown;
  }

  // The image as it is, or a perturbed copy where the page has one.
  showLook(look) {
    if (!this.shown) return;
    const copy = look && this.image.looks[look];
    const uri = copy || this.image.thumbnail[0];
    if (this.shown.getAttribute("src") !== uri) this.shown.setAttribute("src", uri);
    this.shown.classList.toggle("as-it-is", Boolean(look) && !copy);
  }

  draws() {
    return data.adaptive ? [element("p", { class: "draws" }, `${this.image.draws} draws`)] : [];
  }

  labels() {
    if (!this.image.labels.length) return [element("p", { class: "none" }, `No ${OWN_WORD} label, so no fraction of them can stay.`)];
    return data.labelled ? [this.truth] : [];
  }

  makeTruth() {
    const { labels, predicted } = this.image;
    const own = ownRadii(this.image);
    const heading = element("li", { "aria-hidden": "true" }, element("span", {}, "true label"), element("span", {}, "stays up to"));
    this.truth.replaceChildren(heading, ...labels.map((label, index) => {
      const found = predicted.includes(label);
      const radius = own[index];
      const alone = [unseen(Number.isFinite(radius) ? ", stays up to " : `, ${radiusText(radius)}`),
        Number.isFinite(radius) ? radiusText(radius) : element("span", { "aria-hidden": "true" }, radius > 0 ? "∞" : "—")];
      const words = found ? "predicted: " : "not predicted: ";
      return element("li", { class: found ? "found" : "missed" },
        element("span", { class: "mark", "aria-hidden": "true" }, found ? "✓" : "✗"), unseen(words),
        element("span", { class: "name" }, data.labelNames[label]), element("small", {}, ...alone));
    }));
  }

  // Without ground truth each predicted label has a bar of its own, or is marked as unconfirmed.
  makeOwnBars() {
    return this.image.labels.map((label, index) => barRow([data.labelNames[label]], radiusOf(this.image.own[index]), this.longest, "unconfirmed"));
  }

  ownList() {
    if (!this.ownBars.length) return [];
    const list = element("ol", { class: "radii own", "aria-label": "Predicted labels" }, ...this.ownBars.map(({ row }) => row));
    return [element("div", {}, element("h4", {}, "Each predicted label stays up to"), list)];
  }

  prediction() {
    const { labels, predicted, hits, draws } = this.image;
    const items = predicted.map((label, index) => {
      return element("li", { class: data.labelled && labels.includes(label) ? "true-one" : null }, `${data.labelNames[label]}\u00a0`,
        element("small", {}, drawFraction(hits[index], draws), data.labelled || labels.includes(label) ? "" : ", not chosen by the pilot draws"));
    });
    if (!items.length) items.push(element("li", {}, "none: no label reaches t"));
    const heading = data.labelled ? `Predicted, in % of the ${DRAWS_WORD}` : `Returned by the certifying ${DRAWS_WORD}, in % of them`;
    return element("div", { class: "prediction" }, element("h4", {}, heading), element("ol", {}, ...items));
  }

  update() {
    if (this.method !== state.method) this.makeProofs();
    for (const { radius, row } of [...this.ownBars, ...this.bars]) row.classList.toggle("holds", radius >= currentRadius());
    if (this.image.labels.length) this.count.replaceChildren(...this.countWords());
  }

  countWords() {
    const { image } = this;
    const size = certifiedSize(image);
    const pips = element("span", { class: "pips", "aria-hidden": "true" }, "●".repeat(size) + "○".repeat(image.labels.length - size));
    const words = [element("strong", {}, `${size} of ${image.labels.length}`), data.labelled ? " certified " : " certified to stay ", pips];
    if (!image.ceilings) return words;
    return [...words, element("span", { class: "ceiling" }, this.ceilingWords(certifiedCeiling(image)))];
  }

  ceilingWords(most) {
    if (!this.image.ceilings[state.method].length) return `no ${OTHER_WORD} label is possible`;
    if (most === null) return `any number of ${OTHER_WORD} labels`;
    return `at most ${most} ${OTHER_WORD} ${most === 1 ? "label" : "labels"}`;
  }

  makeProofs() {
    this.method = state.method;
    const { image, longest } = this;
    this.makeTruth();
    const floors = floorRows(image.radii[state.method].map(radiusOf));
    this.bars = floors.map(({ size, radius }) => barRow([unseen("at least "), `≥\u2009${size}`], radius, longest));
    const lists = [this.proofList("Certified radii", "floors", this.bars, this.floorHeading())];
    if (image.ceilings) {
      const ceilings = ceilingRows(image.ceilings[state.method].map(radiusOf)).map(({ size, radius }) => barRow([unseen("at most "), `≤\u2009${size}`], radius, longest));
      this.bars = [...this.bars, ...ceilings];
      lists.push(this.proofList("Ceilings", "ceilings", ceilings, `${OTHER_WORD} labels returned, at most`));
    }
    this.proofs.replaceChildren(...lists.flat());
  }

  floorHeading() {
    if (!data.labelled) return "predicted labels that stay, at least";
    return this.image.ceilings ? "true labels that stay, at least" : null;
  }

  proofList(label, name, bars, heading) {
    if (!bars.length) return [];
    return [...(heading ? [element("h4", {}, heading)] : []), element("ol", { class: `radii ${name}`, "aria-label": label }, ...bars.map(({ row }) => row))];
  }
}
