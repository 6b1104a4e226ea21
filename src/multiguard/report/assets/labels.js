// A small chart per label: how often it is certified at each radius, in steps, with a line at the chosen one.
const STRIP = { width: 200, height: 30 };

// What is proved at a radius holds at all smaller ones, so each step has the value at its larger radius.
function stripPath(certified) {
  const last = data.grid.at(-1) || 1;
  const point = (radius, value) => `${((STRIP.width * radius) / last).toFixed(2)} ${(STRIP.height * (1 - value)).toFixed(2)}`;
  const steps = data.grid.slice(1).map((radius, index) => `L${point(data.grid[index], certified[index + 1])} L${point(radius, certified[index + 1])}`);
  return `M0 ${STRIP.height} L${point(0, certified[0])} ${steps.join(" ")} L${STRIP.width} ${STRIP.height} Z`;
}

class LabelStrips {
  constructor() {
    this.list = document.querySelector(".label-strips");
    this.order = document.getElementById("label-order");
    this.rows = data.labels.map((label) => this.makeRow(label));
    this.order.addEventListener("change", () => this.update());
    this.update();
  }

  makeRow(label) {
    const drawing = document.createElementNS(SVG, "svg");
    drawing.setAttribute("viewBox", `0 0 ${STRIP.width} ${STRIP.height}`);
    drawing.setAttribute("preserveAspectRatio", "none");
    const area = document.createElementNS(SVG, "path");
    area.setAttribute("d", stripPath(label.certified));
    drawing.append(area);
    const strip = element("span", { class: "strip", "aria-hidden": "true" }, drawing);
    const value = element("span", { class: "value" });
    const name = element("span", { class: "name" }, label.name, element("small", {}, ` ${label.images}`, element("span", { class: "unseen" }, label.images === 1 ? " image" : " images")));
    return { label, value, row: element("li", {}, name, strip, value) };
  }

  compare(a, b) {
    const byName = a.label.name.localeCompare(b.label.name);
    if (this.order.value === "name") return byName;
    if (this.order.value === "images") return b.label.images - a.label.images || byName;
    return b.label.certified[state.index] - a.label.certified[state.index] || b.label.certified[0] - a.label.certified[0] || byName;
  }

  update() {
    for (const { label, value } of this.rows) value.textContent = `${percent(label.certified[state.index])} %`;
    this.list.style.setProperty("--at", currentRadius() / (data.grid.at(-1) || 1));
    const sorted = [...this.rows].sort((a, b) => this.compare(a, b)).map(({ row }) => row);
    if (sorted.some((row, index) => row !== this.list.children[index])) this.list.append(...sorted);
  }
}
