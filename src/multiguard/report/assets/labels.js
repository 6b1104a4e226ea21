// A bar per label: how often it is certified at the chosen radius, inside the outline for radius 0.
class LabelBars {
  constructor() {
    this.list = document.querySelector(".label-bars");
    this.order = document.getElementById("label-order");
    this.rows = data.labels.map((label) => this.makeRow(label));
    this.order.addEventListener("change", () => this.update());
    this.update();
  }

  makeRow(label) {
    const bar = element("span", { class: "fill" });
    const track = element("span", { class: "track", "aria-hidden": "true" }, element("span", { class: "ghost" }), bar);
    track.style.setProperty("--first", label.certified[0]);
    const value = element("span", { class: "value" });
    const name = element("span", { class: "name" }, label.name, element("small", {}, ` ${label.images}`, element("span", { class: "unseen" }, label.images === 1 ? " image" : " images")));
    return { label, track, value, row: element("li", {}, name, track, value) };
  }

  compare(a, b) {
    const byName = a.label.name.localeCompare(b.label.name);
    if (this.order.value === "name") return byName;
    if (this.order.value === "images") return b.label.images - a.label.images || byName;
    return b.label.certified[state.index] - a.label.certified[state.index] || b.label.certified[0] - a.label.certified[0] || byName;
  }

  update() {
    for (const { label, track, value } of this.rows) {
      track.style.setProperty("--fraction", label.certified[state.index]);
      value.textContent = `${percent(label.certified[state.index])} %`;
    }
    const sorted = [...this.rows].sort((a, b) => this.compare(a, b)).map(({ row }) => row);
    if (sorted.some((row, index) => row !== this.list.children[index])) this.list.append(...sorted);
  }
}
