// Figures: the numbers of a drawing under the pointer or the arrow keys, lines that a click shows and hides, and maps to choose from.
// The explorer and every report share it. Nothing is computed here but pixels.

const MANY = 8; // lines, from which on the pointer names the nearest one alone
const LEVELS = 36 * 36 - 1; // of the numbers of maps to choose from, each written in two signs
const level = (map, x, y) => map.z[y].slice(2 * x, 2 * x + 2) === ".." ? null : parseInt(map.z[y].slice(2 * x, 2 * x + 2), 36);
const given = (value, n) => value === null || value === undefined ? "–" : typeof value === "string" ? value : n(value);
const plain = value => Number(value.toPrecision(4)).toString(), share = value => `${Number((100 * value).toPrecision(3))}%`;
const clip = (part, count) => Math.max(0, Math.min(count - 1, Math.floor(part * count)));
const scale = (low, high, log) => log ? value => Math.log(value / low) / Math.log(high / low) : value => (value - low) / (high - low);

export function node(name, about = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(about)) key in made && key !== "list" ? made[key] = value : made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// The frame of the plot, as the drawing says it, in pixels of the page.
function frameOf(svg) {
  const {left, top, width, height} = svg.dataset, by = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
  return {left: left * by, top: top * by, width: width * by, height: height * by};
}

const boxed = (mark, left, top, width, height) => {
  mark.className = "cell";
  Object.assign(mark.style, {left: `${left - 1}px`, top: `${top - 1}px`, width: `${width + 2}px`, height: `${height + 2}px`});
};

function lineReader(figure, svg, shown) {
  const {x0, x1, log, y0, y1, logy} = svg.dataset, across = scale(+x0, +x1, log === "1"), up = scale(+y0, +y1, logy === "1");
  const said = value => given(value, figure.percent ? share : plain), lines = Object.entries(figure.lines ?? {});
  const xs = name => figure.xs?.[name] ?? figure.x ?? [], label = name => figure.labels?.[name] ?? name;
  const places = [...new Set(lines.flatMap(([name]) => xs(name)).filter(x => x !== null))].sort((a, b) => a - b), shares = places.map(across);
  const at = n => lines.filter(([name]) => shown(label(name))).map(([name, values]) => [name, values[xs(name).indexOf(places[n])]])
    .filter(([, value]) => value !== null && value !== undefined);
  const where = n => `${figure.x_title ?? ""} ${figure.x_names?.[figure.x.indexOf(places[n])] ?? plain(places[n])}`.trim();
  return {
    size: [places.length, 1],
    find: (right, down) => [shares.reduce((best, part, n) => Math.abs(part - right) < Math.abs(shares[best] - right) ? n : best, 0), 1 - down],
    words([n, height]) {
      const found = at(n), far = ([, value]) => Math.abs(up(value) - (height ?? 1));
      const named = found.length > MANY ? [found.reduce((best, one) => far(one) < far(best) ? one : best)] : found;
      return [where(n), ...named.map(([name, value]) => `${name}: ${said(value)}`)].join("\n");
    },
    show(mark, [n], frame) {
      mark.className = "hair";
      Object.assign(mark.style, {left: `${frame.left + shares[n] * frame.width}px`, top: `${frame.top}px`, width: "0", height: `${frame.height}px`});
    },
  };
}

function pointReader(figure, svg, shown) {
  const rows = svg.dataset.rows.split(",").map(Number), whole = rows.reduce((a, b) => a + b, 0), tops = rows.map((_, n) => rows.slice(0, n).reduce((a, b) => a + b, 0));
  const said = value => given(value, figure.percent ? share : plain), label = name => figure.labels?.[name] ?? name;
  const between = sides => sides && sides[0] !== null && sides[1] !== null ? ` (${said(sides[0])} to ${said(sides[1])})` : "";
  return {
    size: [1, rows.length],
    find: (right, down) => [0, Math.max(0, tops.findLastIndex(top => top <= down * whole))],
    words: ([, row]) => [figure.y_names[row], ...Object.entries(figure.lines).filter(([name, values]) => shown(label(name)) && values[row] !== null)
      .map(([name, values]) => `${name}: ${said(values[row])}${between(figure.sides?.[name]?.[row])}`)].join("\n"),
    show(mark, [, row], frame) { boxed(mark, frame.left, frame.top + frame.height * tops[row] / whole, frame.width, frame.height * rows[row] / whole); },
  };
}

function scatterReader(figure, svg, shown) {
  const {x0, x1, y0, y1} = svg.dataset, across = scale(+x0, +x1), up = scale(+y0, +y1), label = name => figure.labels?.[name] ?? name;
  const dots = Object.entries(figure.lines).flatMap(([name, ys]) => ys.map((y, n) => ({name, n, x: figure.xs[name][n], y})));
  const between = sides => sides && sides[0] !== null ? ` (${plain(sides[0])} to ${plain(sides[1])})` : "";
  const far = (dot, right, down) => shown(label(dot.name)) ? Math.hypot(across(dot.x) - right, 1 - up(dot.y) - down) : Infinity;
  return {
    size: [dots.length, 1],
    find: (right, down) => [dots.reduce((best, dot, n) => far(dot, right, down) < far(dots[best], right, down) ? n : best, 0), 0],
    words([n]) {
      const {name, n: at, x, y} = dots[n];
      return [name, `${figure.x_title}: ${plain(x)}${between(figure.x_sides?.[name]?.[at])}`,
        `${figure.y_title}: ${plain(y)}${between(figure.sides?.[name]?.[at])}`].join("\n");
    },
    show(mark, [n], frame) { boxed(mark, frame.left + across(dots[n].x) * frame.width - 8, frame.top + (1 - up(dots[n].y)) * frame.height - 8, 16, 16); },
  };
}

function heatReader(figure, svg, shown, chosen) {
  const rows = Number(svg.dataset.rows), columns = Number(svg.dataset.columns);
  const put = words => words.split("|").reduce((text, word) => text.replace("{}", word), figure.note);
  const note = (map, x, y) => map.notes?.length ? put(Array.isArray(map.notes[y]) ? map.notes[y][x] : map.notes[y]) : "";
  const named = (title, name, value) => name === undefined && value === undefined ? "" : `${title ?? ""} ${name ?? given(value, plain)}`.trim();
  return {
    size: [columns, rows],
    find: (right, down) => [clip(right, columns), clip(down, rows)],
    words([x, y]) {
      const map = figure.alternatives?.[chosen()] ?? figure, {low, high} = svg.dataset, packed = figure.alternatives?.length, step = packed ? level(map, x, y) : null;
      const value = !packed ? map.z[y][x] : step === null ? null : Number(low) + step * (high - low) / LEVELS;
      return [named(figure.x_title, figure.x_names?.[x], figure.x?.[x]), named(figure.y_title, figure.y_names?.[y], figure.y?.[y]),
        given(value, figure.percent ? share : plain), note(map, x, y)].filter(Boolean).join("\n");
    },
    show(mark, [x, y], frame) { const wide = frame.width / columns, tall = frame.height / rows; boxed(mark, frame.left + x * wide, frame.top + y * tall, wide, tall); },
  };
}

function dialReader(figure, svg) {
  const across = Number(svg.dataset.across), rows = Math.ceil(figure.dials.length / across);
  return {
    size: [figure.dials.length, 1],
    find: (right, down) => [Math.min(figure.dials.length - 1, Math.floor(down * rows) * across + Math.floor(right * across)), 0],
    words: ([n]) => { const dial = figure.dials[n]; return `${dial.name} · ${dial.note}\n${given(dial.seen, plain)} → ${given(dial.met, plain)} ×360°`; },
    show(mark, [n], frame) { const wide = frame.width / across, tall = frame.height / rows; boxed(mark, frame.left + (n % across) * wide + 1, frame.top + Math.floor(n / across) * tall + 1, wide - 2, tall - 2); },
  };
}

const READERS = {lines: lineReader, points: pointReader, scatter: scatterReader, heat: heatReader, dials: dialReader};

// Show and hide what belongs to labels, in every drawing below some elements. Gives back what is hidden.
export function hide(elements, hidden) {
  for (const element of elements) for (const part of element.querySelectorAll("[data-label]")) part.toggleAttribute("hidden", hidden.has(part.dataset.label));
}

// Let the numbers of a drawing be read: by a pointer, and by the arrow keys, which are spoken. `choose` is called with the cell of a click.
export function read(place, svg, figure, speak, {hidden = new Set(), chosen = () => 0, choose = null} = {}) {
  const reader = READERS[figure.kind](figure, svg, label => !hidden.has(label), chosen);
  const mark = node("div", {hidden: true}), note = node("div", {className: "cursor", hidden: true});
  place.append(mark, note);
  let at = null;
  const leave = () => { mark.hidden = note.hidden = true; at = null; };
  function show(where) {
    at = where;
    const frame = frameOf(svg);
    mark.hidden = note.hidden = false;
    reader.show(mark, at, frame);
    note.textContent = reader.words(at);
    const middle = mark.offsetLeft + mark.offsetWidth / 2, room = place.clientWidth, before = middle > room / 2;
    Object.assign(note.style, before ? {left: "auto", right: `${room - middle + 12}px`} : {right: "auto", left: `${middle + 12}px`});
    note.style.maxWidth = `${(before ? middle : room - middle) - 12}px`;
    note.style.top = `${Math.max(0, Math.min(mark.offsetTop + 8, svg.clientHeight - note.offsetHeight - 4))}px`;
  }
  const under = event => {
    const frame = frameOf(svg), box = svg.getBoundingClientRect();
    const right = (event.clientX - box.left - frame.left) / frame.width, down = (event.clientY - box.top - frame.top) / frame.height;
    return right < 0 || right > 1 || down < 0 || down > 1 ? null : reader.find(right, down);
  };
  place.onpointermove = event => { const found = under(event); if (found) show(found); else leave(); };
  place.onpointerdown = place.onpointermove;
  place.onclick = event => { const found = choose && under(event); if (found) choose(found); };
  place.onpointerleave = leave;
  place.onblur = leave;
  place.onkeydown = event => {
    const step = {ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1]}[event.key];
    if (event.key === "Escape") return leave();
    if (!step) return;
    event.preventDefault();
    const [columns, rows] = reader.size, from = at ?? [rows > columns ? 0 : -1, rows > columns ? -1 : 0];
    show([Math.max(0, Math.min(columns - 1, from[0] + step[0])), rows > 1 ? Math.max(0, Math.min(rows - 1, from[1] + step[1])) : 0]);
    speak(reader.words(at).replaceAll("\n", ", "));
  };
}

// A click on an entry of a drawing's own legend shows or hides its lines.
function legend(svg, hidden) {
  for (const key of svg.querySelectorAll("[data-key]")) if (svg.querySelector(`[data-label="${CSS.escape(key.dataset.key)}"]`)) {
    const press = () => {
      const label = key.dataset.key;
      hidden.has(label) ? hidden.delete(label) : hidden.add(label);
      key.setAttribute("aria-pressed", !hidden.has(label));
      hide([svg], hidden);
    };
    for (const [name, value] of Object.entries({role: "button", tabindex: 0, "aria-pressed": true, "aria-label": key.dataset.key})) key.setAttribute(name, value);
    key.addEventListener("click", event => { event.stopPropagation(); press(); });
    key.addEventListener("keydown", event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); event.stopPropagation(); press(); } });
  }
}

// Put a drawing into its place, and let its numbers be read and its lines be hidden.
export function fill(place, figure, drawing, speak) {
  const svg = document.importNode(new DOMParser().parseFromString(drawing, "image/svg+xml").documentElement, true), hidden = new Set();
  place.replaceChildren(svg);
  legend(svg, hidden);
  read(place, svg, figure, speak, {hidden});
}

// Another map in a drawing's axes and colours: its pixels, and the cell that is framed.
export function repaint(svg, map, palette) {
  const rows = map.z.length, columns = map.z[0].length / 2, {left, width, height} = svg.dataset, canvas = node("canvas", {width: columns, height: rows});
  const context = canvas.getContext("2d"), pixels = context.createImageData(columns, rows);
  for (let n = 0; n < rows * columns; n++) {
    const found = level(map, n % columns, Math.floor(n / columns)), at = 6 * Math.round(found * 254 / LEVELS);
    for (let part = 0; part < 3; part++) pixels.data[4 * n + part] = parseInt(palette.slice(at + 2 * part, at + 2 * part + 2), 16);
    pixels.data[4 * n + 3] = found === null ? 0 : 255;
  }
  context.putImageData(pixels, 0, 0);
  const image = svg.querySelector(".map"), framed = svg.querySelector(".framed");
  image.setAttribute("href", canvas.toDataURL());
  if (framed && map.cell) {
    framed.setAttribute("x", Number(left) + map.cell[1] * width / columns);
    framed.setAttribute("y", Number(image.getAttribute("y")) + map.cell[0] * height / rows);
  }
}
