// A report: buttons that show and hide labels in all figures of a section, lists to choose a map from, and buttons for one verdict alone.

const ONLY = {encoding: "encodings only", strategy: "strategies only", published: "published only", ours: "ours only"};
const spoken = document.getElementById("spoken"), speak = text => { spoken.textContent = text; };

function button(bar, text, act) {
  const made = node("button", {type: "button", className: "some"}, text);
  made.addEventListener("click", act);
  bar.append(made);
  return made;
}

// A click on a label shows or hides it; a double click shows it alone.
function labels(section, bar, hidden, drawings) {
  const chips = [...bar.querySelectorAll("[data-key]")], some = node("span", {className: "several"});
  const draw = () => { for (const chip of chips) chip.setAttribute("aria-pressed", !hidden.has(chip.dataset.key)); hide(drawings, hidden); };
  const show = keep => { hidden.clear(); for (const chip of chips) if (!keep(chip)) hidden.add(chip.dataset.key); draw(); };
  for (const chip of chips) {
    const label = chip.dataset.key;
    chip.addEventListener("click", () => { hidden.has(label) ? hidden.delete(label) : hidden.add(label); draw(); });
    chip.addEventListener("dblclick", () => show(other => other === chip));
  }
  if (!chips.length) return;
  bar.prepend(some);
  button(some, "all", () => show(() => true));
  button(some, "none", () => show(() => false));
  const groups = [...new Set(chips.map(chip => chip.dataset.group))];
  if (groups.length > 1) for (const group of groups) button(some, ONLY[group] ?? group, () => show(chip => chip.dataset.group === group));
  if (section.querySelector(".band")) {
    const bands = button(some, "intervals", () => bands.setAttribute("aria-pressed", !section.classList.toggle("bare")));
    bands.setAttribute("aria-pressed", true);
  }
}

// Lists to choose a map from, and what all of them show; a click on a cell chooses its map, too.
function maps(bar, figures) {
  const list = (words, options) => {
    const made = node("select", {"aria-label": words}, ...options.map(option => new Option(option)));
    made.addEventListener("change", draw);
    if (options.length > 1) bar.append(made);
    return made;
  };
  const every = figures.flatMap(one => one.data.alternatives ?? []), names = [...new Set(every.map(map => map.label))];
  const views = [...new Set(figures.map(one => one.place.dataset.view).filter(Boolean))];
  if (!names.length) return;
  const which = list("Which map", names), view = list("What it shows", views);
  function draw() {
    for (const one of figures) {
      const at = (one.data.alternatives ?? []).findIndex(map => map.label === which.value);
      one.place.hidden = at < 0 || (views.length > 0 && one.place.dataset.view !== view.value);
      if (at >= 0 && at !== one.chosen) for (const svg of one.place.querySelectorAll("svg")) repaint(svg, one.data.alternatives[at], one.data.palette);
      one.chosen = at >= 0 ? at : one.chosen;
    }
  }
  for (const one of figures) one.choose = cell => {
    const found = one.data.alternatives.find(map => map.cell && map.cell[1] === cell[0] && map.cell[0] === cell[1]);
    if (found) { which.value = found.label; draw(); }
  };
  draw();
}

for (const section of document.querySelectorAll("section")) {
  const bar = section.querySelector(".chips"), hidden = new Set();
  const figures = [...section.querySelectorAll(".figure")].map(place =>
    ({place, data: JSON.parse(place.querySelector("script").textContent), chosen: 0, choose: null}));
  for (const one of figures) for (const drawing of one.place.querySelectorAll(".drawing"))
    read(drawing, drawing.querySelector("svg"), one.data, speak, {hidden, chosen: () => one.chosen, choose: cell => one.choose?.(cell)});
  if (bar) { labels(section, bar, hidden, section.querySelectorAll(".figure")); maps(bar, figures); bar.hidden = !bar.children.length; }
}

// A click on the head of a table's column sorts its rows, and another one the other way round; what is no number comes last among numbers.
const measured = cell => { const found = cell.textContent.replaceAll(",", "").match(/^[+-]?\d+(\.\d+)?(e[+-]?\d+)?/); return found ? Number(found[0]) : null; };
for (const head of document.querySelectorAll("thead")) {
  const body = head.nextElementSibling, first = [...body.rows];
  if (first.length > 2) [...head.rows[0].cells].forEach((title, at) => {
    const sorted = node("button", {type: "button"}, ...title.childNodes);
    title.append(sorted);
    sorted.addEventListener("click", () => {
      const way = title.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      for (const other of head.rows[0].cells) other.removeAttribute("aria-sort");
      title.setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
      const keys = new Map(first.map(row => [row, measured(row.cells[at])])), numbers = first.some(row => keys.get(row) !== null);
      const order = (a, b) => !numbers ? way * a.cells[at].textContent.localeCompare(b.cells[at].textContent)
        : keys.get(a) === null || keys.get(b) === null ? (keys.get(a) === null) - (keys.get(b) === null) : way * (keys.get(a) - keys.get(b));
      body.append(...[...first].sort(order));
      speak(`${title.textContent}, ${title.getAttribute("aria-sort")}`);
    });
  });
}

const verdicts = [...document.querySelectorAll("[data-status]")];
function only(word) {
  for (const chip of verdicts) chip.setAttribute("aria-pressed", chip.dataset.status === word);
  for (const one of document.querySelectorAll("[data-is]")) one.hidden = word !== "all" && one.dataset.is !== word;
  for (const group of document.querySelectorAll(".group")) group.hidden = ![...group.querySelectorAll("[data-is]")].some(one => !one.hidden);
}
for (const chip of verdicts) chip.addEventListener("click", () => only(chip.dataset.status));
if (verdicts.length) only("all");
