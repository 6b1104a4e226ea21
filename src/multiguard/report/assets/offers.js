// What can be promised: labels returned for each recall and radius, as two charts and the keys of their table.
class Offers {
  constructor() {
    this.root = document.getElementById("promise");
    for (const head of this.root?.querySelectorAll("[data-line]") ?? []) {
      head.prepend(lineKey(data.offers[head.dataset.of].lines[head.dataset.line]));
    }
  }

  update() {}

  draw() {
    if (!this.root || !window.Plotly) return;
    for (const chart of this.root.querySelectorAll(".chart")) this.drawOne(chart, data.offers[chart.dataset.offers]);
  }

  drawOne(chart, { lines, x, y }) {
    const traces = lines.map((line) => ({
      x: line.x,
      y: line.y,
      name: line.name,
      mode: "lines+markers",
      line: { color: isDark() ? line.dark : line.light, width: line.base ? 2.6 : 1.7, dash: line.dash.map((length) => `${length}px`).join(",") || "solid" },
      marker: { symbol: line.marker, size: 7, color: isDark() ? line.dark : line.light },
      cliponaxis: false,
      hovertemplate: `%{fullData.name}: ${x} %{x}, ${y} %{y}<extra></extra>`,
    }));
    const highest = (axis) => Math.max(...lines.flatMap((line) => line[axis])) * 1.06;
    const layout = chartLayout(chart, [0, highest("x")], x, highest("y"));
    layout.hovermode = "closest";
    Plotly.react(chart.querySelector(".plot"), traces, layout, { displayModeBar: false, displaylogo: false });
  }
}
