// The pictures: cards are made when they are first shown, a few at a time.
const CARDS_AT_A_TIME = 24;

function certifiedSize(picture) {
  return picture.radii[state.method].filter((stored) => radiusOf(stored) >= currentRadius()).length;
}

// The share of true labels certified at the radius, then the area under the picture's own curve of recall.
function strength(picture) {
  const area = picture.radii[state.method].reduce((sum, stored) => sum + Math.max(0, radiusOf(stored)), 0);
  return [certifiedSize(picture) / picture.labels.length, area / picture.labels.length];
}

const ORDERS = {
  weakest: (a, b) => a.strength[0] - b.strength[0] || a.strength[1] - b.strength[1],
  strongest: (a, b) => b.strength[0] - a.strength[0] || b.strength[1] - a.strength[1],
  id: (a, b) => (a.picture.id < b.picture.id ? -1 : 1),
  labels: (a, b) => b.picture.labels.length - a.picture.labels.length || ORDERS.weakest(a, b),
};

class Card {
  constructor(picture, longest) {
    this.picture = picture;
    this.longest = longest;
    this.count = element("p", { class: "count" });
    this.radii = element("ol", { class: "radii", "aria-label": "Certified radii" });
    const body = element("div", { class: "body" }, element("h3", { title: picture.id }, picture.id), this.count, this.trueLabels());
    this.root = element("article", { class: "card" }, element("div", { class: "top" }, this.image(), body), this.radii, this.prediction());
    this.root.dataset.id = picture.id;
  }

  image() {
    if (!this.picture.thumbnail) return element("div", { class: "absent" }, "no picture at hand");
    const [uri, width, height] = this.picture.thumbnail;
    const small = Math.max(width, height) < 100 ? "small" : null;
    return element("img", { src: uri, alt: "", loading: "lazy", decoding: "async", class: small });
  }

  trueLabels() {
    const { labels, own, predicted } = this.picture;
    if (!labels.length) return element("p", { class: "none" }, "No true label: left out of the averages.");
    const heading = element("li", { "aria-hidden": "true" }, element("span", {}, "true label"), element("span", {}, "alone up to"));
    return element("ul", { class: "true", "aria-label": "True labels" }, heading, ...labels.map((label, place) => {
      const found = predicted.includes(label);
      const radius = radiusOf(own[place]);
      const alone = [element("span", { class: "unseen" }, Number.isFinite(radius) ? ", alone up to " : `, alone ${radiusText(radius)}`),
        Number.isFinite(radius) ? radiusText(radius) : element("span", { "aria-hidden": "true" }, radius > 0 ? "∞" : "—")];
      const words = found ? "among the labels predicted: " : "not among the labels predicted: ";
      return element("li", { class: found ? "found" : "missed" },
        element("span", { class: "mark", "aria-hidden": "true" }, found ? "✓" : "✗"), element("span", { class: "unseen" }, words),
        element("span", { class: "name" }, data.labelNames[label]), element("small", {}, ...alone));
    }));
  }

  prediction() {
    const { labels, predicted, hits } = this.picture;
    const items = predicted.map((label, place) => {
      const share = Math.round((100 * hits[place]) / data.draws);
      return element("li", { class: labels.includes(label) ? "true-one" : null }, `${data.labelNames[label]}\u00a0`, element("small", {}, share === 0 && hits[place] ? "<1\u00a0%" : `${share}\u00a0%`));
    });
    return element("div", { class: "prediction" }, element("h4", {}, "Predicted, with its share of the draws"), element("ol", {}, ...items));
  }

  update() {
    const { picture } = this;
    if (this.method !== state.method) this.makeBars();
    if (!picture.labels.length) return;
    const size = certifiedSize(picture);
    this.count.replaceChildren(element("strong", {}, `${size} of ${picture.labels.length}`), " certified ",
      element("span", { class: "pips", "aria-hidden": "true" }, "●".repeat(size) + "○".repeat(picture.labels.length - size)));
    this.bars.forEach((bar, place) => bar.classList.toggle("holds", place < size));
  }

  // Radii fall, so the sizes that are not certified come last; they share one row.
  makeBars() {
    this.method = state.method;
    const radii = this.picture.radii[state.method].map(radiusOf);
    const proved = radii.filter((radius) => radius > -Infinity);
    this.bars = proved.map((radius, place) => this.makeBar(`≥\u2009${place + 1}`, radius));
    if (proved.length < radii.length) {
      const sizes = proved.length + 1 < radii.length ? `${proved.length + 1}–${radii.length}` : radii.length;
      this.bars.push(this.makeBar(`≥\u2009${sizes}`, -Infinity));
    }
    this.radii.replaceChildren(...this.bars);
    this.radii.hidden = !this.bars.length;
  }

  makeBar(size, radius) {
    const track = element("span", { class: "track", "aria-hidden": "true" });
    if (radius > -Infinity) track.append(element("span", { class: radius === Infinity ? "fill endless" : "fill" }));
    track.style.setProperty("--share", Math.min(1, Math.max(0, radius / this.longest)));
    return element("li", {}, element("span", { class: "size" }, element("span", { class: "unseen" }, "at least "), size), track, element("span", { class: "value" }, radiusText(radius)));
  }
}

class Gallery {
  constructor() {
    this.root = document.querySelector(".gallery");
    this.longest = Math.max(data.grid.at(-1), ...data.pictures.flatMap((picture) => Object.values(picture.radii).flat().map(radiusOf).filter(Number.isFinite)));
    this.entries = data.pictures.map((picture) => ({ picture, card: null, text: this.textOf(picture) }));
    this.limit = CARDS_AT_A_TIME;
    this.order = document.getElementById("picture-order");
    this.label = document.getElementById("picture-label");
    this.text = document.getElementById("picture-text");
    this.fillLabels();
    for (const control of [this.order, this.label, this.text]) control.addEventListener("input", () => this.restart());
    document.getElementById("show-more").addEventListener("click", () => this.show(this.limit + 2 * CARDS_AT_A_TIME));
    document.getElementById("show-all").addEventListener("click", () => this.show(Infinity));
    this.update();
  }

  textOf(picture) {
    return [picture.id, ...[...picture.labels, ...picture.predicted].map((label) => data.labelNames[label])].join("\n").toLowerCase();
  }

  fillLabels() {
    const counts = new Map();
    for (const { picture } of this.entries) for (const label of picture.labels) counts.set(label, (counts.get(label) ?? 0) + 1);
    const sorted = [...counts].sort(([a], [b]) => data.labelNames[a].localeCompare(data.labelNames[b]));
    this.label.append(...sorted.map(([label, count]) => element("option", { value: label }, `${data.labelNames[label]} (${count})`)));
  }

  restart() {
    this.limit = CARDS_AT_A_TIME;
    this.update();
  }

  show(limit) {
    this.limit = limit;
    this.update();
  }

  chosen() {
    const text = this.text.value.trim().toLowerCase();
    const label = this.label.value === "" ? null : Number(this.label.value);
    const kept = this.entries.filter((entry) => entry.text.includes(text) && (label === null || entry.picture.labels.includes(label)));
    for (const entry of kept) entry.strength = strength(entry.picture);
    const last = this.order.value === "id" ? () => 0 : (a, b) => !a.picture.labels.length - !b.picture.labels.length;
    return kept.sort((a, b) => last(a, b) || ORDERS[this.order.value](a, b));
  }

  update() {
    const chosen = this.chosen();
    const shown = chosen.slice(0, this.limit);
    for (const entry of shown) {
      entry.card ??= new Card(entry.picture, this.longest);
      entry.card.update();
    }
    const cards = shown.map((entry) => entry.card.root);
    const changed = cards.length !== this.root.children.length || cards.some((card, place) => card !== this.root.children[place]);
    if (changed) this.root.replaceChildren(...cards);
    this.root.style.setProperty("--cursor", currentRadius() / this.longest);
    document.getElementById("picture-count").textContent = `${shown.length} of ${chosen.length} shown` + (chosen.length < this.entries.length ? `, ${this.entries.length} in all` : "");
    document.querySelector(".more").hidden = shown.length === chosen.length;
  }
}
