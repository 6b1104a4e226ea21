// The answer as it grows: bars of label frequencies, radii, and what is proved at the radius of the slider.
const byId = (id) => document.getElementById(id);
const slider = byId("radius");
const nameOf = (index) => data.labels[index];
const MUCH_SMALLER = 100; // pixels per side below which an image is shown pixel by pixel
const CALM = 1000; // milliseconds between noisy copies for those who prefer less motion
const lessMotion = matchMedia("(prefers-reduced-motion: reduce)");

// A radius of the slider: exact where that is short, otherwise rounded down, which claims less.
function gridText(radius) {
  const exact = String(radius);
  return exact.length <= 6 ? exact : roundedDown(radius, 4);
}

const listed = (words) => (words.length > 1 ? `${words.slice(0, -1).join(", ")} and ${words.at(-1)}` : words.join(""));

function showImage(target, uri, size) {
  target.src = uri;
  target.classList.toggle("small", Math.max(size.width, size.height) < MUCH_SMALLER);
}

class Answer {
  constructor() {
    this.rows = new Map();
    this.body = byId("labels");
    this.reset();
  }

  reset() {
    this.run = null;
    this.claims = null;
    this.message = null;
    this.copied = -Infinity;
    this.rows.clear();
    this.body.replaceChildren();
    for (const id of ["together", "seed-words", "copy-words", "image-words", "status", "statement"]) byId(id).textContent = "";
    byId("copy").removeAttribute("src");
    byId("progress").style.width = "0";
    this.update();
  }

  begin(run) {
    this.run = run;
    const { width, height } = run.image;
    showImage(byId("image"), run.image.uri, run.image);
    byId("image-words").textContent = `as the classifier gets it, ${width} × ${height}`;
    byId("seed-words").textContent = `Seed of the noise: ${run.noise_seed}, drawn for this image after it was sent.`;
    if (!this.claims) byId("statement").textContent = data.promise ? `${run.goal} draws decide which labels are returned.` : "The first draws choose the labels; the draws after them prove how far each stays.";
    this.progress();
  }

  draws(message) {
    this.message = message;
    if (message.copy && !(lessMotion.matches && performance.now() - this.copied < CALM)) {
      this.copied = performance.now();
      showImage(byId("copy"), message.copy.uri, this.run.image);
      byId("copy-words").textContent = `noisy copy ${message.copy.draw + 1}${message.phase === "pilot" ? ", a pilot draw" : ""}`;
    }
    for (const [index, hits] of message.hits) this.row(index).hits = hits / message.draws;
    this.progress();
    this.update();
  }

  claim(claims) {
    this.claims = claims;
    for (const each of claims.labels) this.row(each.index).radius = each.radius === null ? -Infinity : radiusOf(each.radius);
    this.update();
  }

  row(index) {
    if (!this.rows.has(index)) this.rows.set(index, this.makeRow(index));
    return this.rows.get(index);
  }

  makeRow(index) {
    const bar = (name) => {
      const fill = element("span", { class: "fill" });
      return [element("td", { class: name }, element("span", { class: "track", "aria-hidden": "true" }, fill)), fill];
    };
    const [often, hitsFill] = bar("often");
    const [far, radiusFill] = bar("far");
    const percentCell = element("td", { class: "percent" });
    const value = element("td", { class: "value" });
    const root = element("tr", {}, element("th", { scope: "row" }, nameOf(index)), often, percentCell, far, value);
    root.dataset.label = nameOf(index);
    return { index, root, hitsFill, radiusFill, percentCell, value, often, far, hits: 0, radius: null };
  }

  progress() {
    const draws = this.message && this.message.phase === "certify" ? this.message.draws : 0;
    byId("draws").textContent = draws ? String(draws) : "–";
    const choosing = this.message && this.message.phase === "pilot";
    const [made, all] = choosing ? [this.message.draws, this.run.pilot_draws] : [draws, this.run.goal];
    byId("progress").style.width = `${(100 * made) / Math.max(1, all)}%`;
    byId("status").textContent = choosing ? `choosing the labels: ${made} of ${all} draws` : `${made} of ${all} draws`;
  }

  get chosen() {
    return this.message ? this.message.chosen : [];
  }

  proved(radius) {
    return this.claims ? this.claims.labels.filter((each) => each.radius !== null && radiusOf(each.radius) >= radius) : [];
  }

  update() {
    const radius = currentRadius();
    const longest = data.grid.at(-1);
    byId("radius-shown").textContent = gridText(radius);
    slider.setAttribute("aria-valuetext", `R = ${gridText(radius)}`);
    slider.style.setProperty("--filled", state.index / (data.grid.length - 1));
    const order = [...this.rows.values()].sort((a, b) => this.place(a) - this.place(b) || b.hits - a.hits || a.index - b.index);
    order.forEach((row, place) => {
      if (this.body.children[place] !== row.root) this.body.insertBefore(row.root, this.body.children[place] ?? null);
      this.showRow(row, radius, longest);
    });
    this.state(radius);
  }

  place(row) {
    return this.chosen.includes(row.index) ? 0 : 1;
  }

  showRow(row, radius, longest) {
    const chosen = this.chosen.includes(row.index);
    const choosing = !this.claims && (data.promise || !this.chosen.length);
    const proved = row.radius !== null && row.radius > -Infinity;
    row.root.className = !chosen ? "other" : proved ? (row.radius >= radius ? "holds" : "") : "unproved";
    row.hitsFill.style.width = `${100 * row.hits}%`;
    if (data.promise) row.often.style.setProperty("--least", data.least_hits / data.draws);
    row.percentCell.textContent = `${row.hits > 0 && row.hits < 0.01 ? "<1" : Math.round(100 * row.hits)} %`;
    row.far.style.setProperty("--cursor", radius / longest);
    row.radiusFill.hidden = !proved;
    row.radiusFill.classList.toggle("endless", row.radius === Infinity);
    row.radiusFill.style.width = proved ? `${100 * Math.min(1, row.radius / longest)}%` : "0";
    const words = row.radius === Infinity ? "cannot fail" : `stays up to ${!proved ? "" : data.whole ? row.radius : roundedDown(row.radius, 2)}`;
    row.value.textContent = !chosen ? (choosing ? "" : data.promise ? "not returned" : "not chosen") : proved ? words : "unconfirmed";
  }

  // In words: which labels are proved at this radius, and how many of them together.
  state(radius) {
    if (!this.claims) {
      byId("count").textContent = "–";
      return;
    }
    const proved = this.proved(radius);
    const all = this.claims.labels.length;
    byId("count").textContent = `${proved.length} of ${all}`;
    const target = byId("statement");
    const where = element("span", { class: "nowrap" }, `R = ${gridText(radius)}`);
    const returned = data.promise ? ["Returned: ", element("b", {}, listed(this.claims.labels.map((each) => each.label))), ". "] : [];
    const parts = !all ? ["No label is returned often enough, so there is none to prove."]
      : proved.length ? [...returned, element("b", {}, listed(proved.map((each) => each.label))), ` provably ${proved.length > 1 ? "stay" : "stays"} under ${data.threats[state.index]}.`]
      : [...returned, data.promise ? "No label alone is proved at " : "No label is proved at ", where, data.promise ? "." : ` after ${this.claims.draws} draws${this.running ? ", so far" : ""}.`];
    const words = parts.map((part) => (typeof part === "string" ? part : part.textContent)).join("");
    if (target.textContent !== words) target.replaceChildren(...parts);
    byId("together").textContent = this.togetherWords(radius, proved.length, all);
  }

  togetherWords(radius, alone, all) {
    const stay = this.claims.set_radii.filter((stored) => stored !== null && radiusOf(stored) >= radius).length;
    const words = [];
    if (stay > alone) words.push(`Of these ${all} labels at least ${stay} stay at this R, whichever they are.`);
    if (this.claims.other_radii) {
      const most = this.claims.other_radii.findIndex((stored) => stored !== null && radiusOf(stored) >= radius);
      words.push(most < 0 ? "How many other labels may come in is not proved." : `At most ${most} other ${most === 1 ? "label comes" : "labels come"} in.`);
    }
    return words.join(" ");
  }
}
