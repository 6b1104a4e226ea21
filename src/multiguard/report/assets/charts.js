// One small chart per score of a family. Axes are fixed, so the style sheet can position the line at the radius.
const MARGIN = { l: 40, r: 10, t: 8, b: 34 };

const darkScheme = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => darkScheme.matches && !document.documentElement.hasAttribute("data-printing");
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Plotly interprets some tags in its texts; names from the data must stay as they are.
const asPlotlyText = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

function translucent(hex, alpha) {
  const [r, g, b] = [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));
  return `rgba(${r}, ${g}, ${b}, ${alpha})`;
}

const onAxis = (score, value) => (isFraction(score) ? 100 * value : value);

// What is proved at a radius holds at all smaller ones: between two radii of the grid a line has the value at the larger.
const STEPS = "vh"; // first up or down, then on
const onSteps = (values) => values.flatMap((value) => [value, value]);

function lineTrace(family, line, score) {
  const values = line[state.averaging][score];
  const colour = isDark() ? line.dark : line.light;
  return {
    x: family.grid,
    y: values.map((value) => onAxis(score, value)),
    customdata: values.map((value) => scoreText(score, value)),
    name: asPlotlyText(line.name),
    mode: "lines+markers",
    line: { shape: STEPS, color: colour, width: line.base ? 2.6 : 1.7, dash: line.dash.map((length) => `${length}px`).join(",") || "solid" },
    marker: { symbol: line.marker, size: 7, maxdisplayed: 8, color: colour },
    hovertemplate: "%{fullData.name}  <b>%{customdata}</b><extra></extra>",
  };
}

function bandTrace(family, line, score) {
  const bands = line[state.averaging].bands;
  if (!bands?.[score]) return [];
  const [low, high] = bands[score].map((values) => onSteps(values).slice(1));
  const radii = onSteps(family.grid).slice(0, -1);
  return [{
    x: [...radii, ...[...radii].reverse()],
    y: [...high, ...[...low].reverse()].map((value) => 100 * value),
    fill: "toself",
    fillcolor: translucent(isDark() ? line.dark : line.light, 0.14),
    line: { width: 0 },
    mode: "lines",
    hoverinfo: "skip",
  }];
}

// One scale for both averagings and the bands, so that the switch moves the curves and not the axis.
function highest(family, score) {
  const tops = family.lines.flatMap((line) => ["mean", "pooled"].flatMap((averaging) => [
    ...line[averaging][score],
    ...(line[averaging].bands?.[score]?.[1] ?? []),
  ]));
  const { top } = family.measures.find(({ key }) => key === score);
  return top ?? onAxis(score, Math.max(0.01, ...tops)) * 1.06;
}

function chartLayout(chart, range, words, top) {
  const axis = { fixedrange: true, zeroline: false, linecolor: ink("--rule-strong"), tickcolor: ink("--rule-strong"), tickfont: { size: 11 } };
  return {
    margin: MARGIN,
    width: chart.clientWidth,
    height: chart.clientHeight,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: ink("--sans"), size: 12, color: ink("--quiet") },
    showlegend: false,
    dragmode: false,
    hovermode: "x unified",
    hoverlabel: { bgcolor: ink("--panel"), bordercolor: ink("--rule-strong"), font: { color: ink("--ink"), size: 12 } },
    xaxis: { ...axis, range, showgrid: false, showline: true, ticks: "outside", ticklen: 4, title: { text: words, font: { size: 12 }, standoff: 4 }, unifiedhovertitle: { text: "R = %{x}" } },
    yaxis: { ...axis, range: [0, top], gridcolor: ink("--rule"), nticks: 6 },
  };
}

function drawChart(chart, family, score) {
  const traces = [
    ...family.lines.flatMap((line) => bandTrace(family, line, score)),
    ...[...family.lines].sort((a, b) => a.base - b.base).map((line) => lineTrace(family, line, score)),
  ];
  chart.setAttribute("aria-label", `Chart of ${family.measures.find(({ key }) => key === score).word} against R: ${family.lines.map((line) => line.name).join(", ")}. The table below has the numbers at the chosen radius.`);
  return Plotly.react(chart.querySelector(".plot"), traces, chartLayout(chart, [0, family.grid.at(-1) || 1], data.axis, highest(family, score)), { displayModeBar: false, displaylogo: false });
}
