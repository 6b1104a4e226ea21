// One section of curves: tabs if there are several families, their charts, and a table at the chosen radius.
class FamilyView {
  constructor(id, families) {
    this.root = document.getElementById(id);
    this.families = families;
    this.family = families[0];
    this.near = false;
    this.panel = this.root.querySelector(".panel");
    if (families.length > 1) this.makeTabs();
    this.watch();
    this.choose(this.family);
  }

  makeTabs() {
    const list = this.root.querySelector(".tabs");
    list.hidden = false;
    this.tabs = this.families.map((family) => {
      const id = `tab-${this.root.id}-${family.key}`;
      const tab = element("button", { type: "button", role: "tab", id, "aria-controls": this.panel.id }, TAB_WORDS[family.key] ?? family.symbol);
      tab.addEventListener("click", () => this.choose(family));
      tab.addEventListener("keydown", (event) => this.onKey(event));
      return tab;
    });
    list.append(...this.tabs);
    this.panel.setAttribute("role", "tabpanel");
    this.panel.tabIndex = 0;
  }

  onKey(event) {
    const steps = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const last = this.families.length - 1;
    const moved = this.families.indexOf(this.family) + steps[event.key];
    const next = Number.isFinite(steps[event.key]) ? (moved + last + 1) % (last + 1) : moved > 0 ? last : 0;
    this.choose(this.families[next]);
    this.tabs[next].focus();
  }

  choose(family) {
    this.family = family;
    (this.tabs ?? []).forEach((tab, index) => {
      const chosen = this.families[index] === family;
      tab.setAttribute("aria-selected", chosen);
      tab.tabIndex = chosen ? 0 : -1;
      if (chosen) this.panel.setAttribute("aria-labelledby", tab.id);
    });
    const title = this.root.querySelector(".family-title");
    title.textContent = family.title;
    title.hidden = !family.title || (this.families.length < 2 && family.key === "methods");
    this.root.querySelector(".what").textContent = family.symbol;
    this.root.querySelector(".note").textContent = family.note;
    this.makeRows();
    this.draw();
    this.update();
  }

  makeRows() {
    this.rows = this.family.lines.map((line) => {
      const cells = this.family.measures.map(() => element("td"));
      const name = element("th", { scope: "row" }, element("span", { class: "line" }, lineKey(line), element("span", {}, line.name)));
      return { line, cells, row: element("tr", line.base ? { class: "base" } : {}, name, ...cells) };
    });
    this.root.querySelector("tbody").replaceChildren(...this.rows.map(({ row }) => row));
  }

  // Charts far below the window are drawn when they come near it.
  watch() {
    const observer = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      observer.disconnect();
      this.near = true;
      this.draw();
    }, { rootMargin: "600px" });
    observer.observe(this.root);
  }

  draw() {
    if (!this.near || !window.Plotly) return;
    for (const chart of this.root.querySelectorAll(".chart")) drawChart(chart, this.family, chart.dataset.chart);
  }

  update() {
    const index = this.family.grid.indexOf(currentRadius());
    for (const { line, cells } of this.rows) {
      cells.forEach((cell, column) => {
        const { key } = this.family.measures[column];
        cell.replaceChildren(scoreText(key, line[state.averaging][key][index]), ...differenceWords(line, key, index));
      });
    }
    this.root.style.setProperty("--at", currentRadius() / (this.family.grid.at(-1) || 1));
  }
}

const signed = (value, round) => `${value < 0 ? "−" : "+"}${(Math.abs(round(1000 * value)) / 10).toFixed(1)}`;

// By how many points a line is above the baseline, and the interval, rounded outwards.
function differenceWords(line, score, index) {
  const found = line.differences?.[state.averaging]?.[score].map((values) => values[index]);
  if (!found) return [];
  const [value, low, high] = [signed(found[0], Math.round), signed(found[1], Math.floor), signed(found[2], Math.ceil)];
  const sure = found[1] > 0 ? " above" : found[2] < 0 ? " below" : "";
  return [element("small", { class: `difference${sure}` }, `${value} `, element("span", {}, `(${low} to ${high})`))];
}

const TAB_WORDS = { methods: "Methods", k_prime: "k′", k: "k", threshold: "t", n: "n", alpha: "α", noise: "Noise", training: "Training noise" };
