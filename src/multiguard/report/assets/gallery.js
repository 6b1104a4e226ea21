// The images: cards are created when first shown, a few at a time.
const CARDS_AT_A_TIME = 24;

// The fraction of its labels certified at the radius, then the area under the image's recall curve.
function strength(image) {
  const area = image.radii[state.method].reduce((sum, stored) => sum + Math.max(0, radiusOf(stored)), 0);
  return [certifiedSize(image) / image.labels.length, area / image.labels.length];
}

const ORDERS = {
  weakest: (a, b) => a.strength[0] - b.strength[0] || a.strength[1] - b.strength[1],
  strongest: (a, b) => b.strength[0] - a.strength[0] || b.strength[1] - a.strength[1],
  id: (a, b) => (a.image.id < b.image.id ? -1 : 1),
  labels: (a, b) => b.image.labels.length - a.image.labels.length || ORDERS.weakest(a, b),
};

class Gallery {
  constructor() {
    this.root = document.querySelector(".gallery");
    this.longest = Math.max(data.grid.at(-1), ...data.images.flatMap((image) => [...Object.values(image.radii).flat(), ...(data.labelled ? [] : image.own)].map(radiusOf).filter(Number.isFinite)));
    this.entries = data.images.map((image) => ({ image, card: null, text: this.textOf(image) }));
    this.limit = CARDS_AT_A_TIME;
    this.order = document.getElementById("image-order");
    this.label = document.getElementById("image-label");
    this.text = document.getElementById("image-text");
    this.look = document.getElementById("image-look");
    this.fillLabels();
    this.look.addEventListener("input", () => this.update());
    for (const control of [this.order, this.label, this.text]) control.addEventListener("input", () => this.restart());
    document.getElementById("show-more").addEventListener("click", () => this.show(this.limit + 2 * CARDS_AT_A_TIME));
    document.getElementById("show-all").addEventListener("click", () => this.show(Infinity));
    this.update();
  }

  textOf(image) {
    return [image.id, ...[...image.labels, ...image.predicted].map((label) => data.labelNames[label])].join("\n").toLowerCase();
  }

  fillLabels() {
    const counts = new Map();
    for (const { image } of this.entries) for (const label of image.labels) counts.set(label, (counts.get(label) ?? 0) + 1);
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
    const kept = this.entries.filter((entry) => entry.text.includes(text) && (label === null || entry.image.labels.includes(label)));
    for (const entry of kept) entry.strength = strength(entry.image);
    const last = this.order.value === "id" ? () => 0 : (a, b) => !a.image.labels.length - !b.image.labels.length;
    return kept.sort((a, b) => last(a, b) || ORDERS[this.order.value](a, b));
  }

  update() {
    const chosen = this.chosen();
    const shown = chosen.slice(0, this.limit);
    for (const entry of shown) {
      entry.card ??= new Card(entry.image, this.longest);
      entry.card.update();
      entry.card.showLook(this.look.value);
    }
    for (const words of document.querySelectorAll("[data-look]")) words.hidden = words.dataset.look !== this.look.value;
    const cards = shown.map((entry) => entry.card.root);
    const changed = cards.length !== this.root.children.length || cards.some((card, index) => card !== this.root.children[index]);
    if (changed) this.root.replaceChildren(...cards);
    this.root.style.setProperty("--cursor", currentRadius() / this.longest);
    document.getElementById("image-count").textContent = `${shown.length} of ${chosen.length} shown` + (chosen.length < this.entries.length ? `, ${this.entries.length} in all` : "");
    document.querySelector(".more").hidden = shown.length === chosen.length;
  }
}
