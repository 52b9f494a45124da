// Figures: the drawing that the server made, put into the page; its numbers under the pointer or the arrow keys; and PNG.
// Nothing is computed here but pixels.

const short = value => value === null || value === undefined ? "–" : typeof value === "string" ? value : Number(value.toPrecision(4)).toString();

function node(name, about = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(about)) key in made && key !== "list" ? made[key] = value : made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// The frame of the plot, as the drawing says it, in pixels of the page.
function frameOf(svg) {
  const {left, top, width, height} = svg.dataset, scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
  return {left: left * scale, top: top * scale, width: width * scale, height: height * scale};
}

function lineReader(figure, svg) {
  const {x0, x1, log} = svg.dataset, place = value => log === "1" ? Math.log(value / x0) / Math.log(x1 / x0) : (value - x0) / (x1 - x0);
  const shares = figure.x.map(place);
  return {
    size: [figure.x.length, 1],
    find: (across, down) => [shares.reduce((best, share, n) => Math.abs(share - across) < Math.abs(shares[best] - across) ? n : best, 0), 0],
    words: ([n]) => [`${figure.x_title} ${figure.x_names[n] ?? short(figure.x[n])}`,
      ...Object.entries(figure.lines).filter(([, values]) => values[n] !== null).map(([name, values]) => `${name}: ${short(values[n])}`)].join("\n"),
    show(mark, [n], frame) {
      mark.className = "hair";
      Object.assign(mark.style, {left: `${frame.left + shares[n] * frame.width}px`, top: `${frame.top}px`, width: "0", height: `${frame.height}px`});
    },
  };
}

function heatReader(figure, svg) {
  const rows = Number(svg.dataset.rows), columns = Number(svg.dataset.columns);
  const clip = (share, count) => Math.max(0, Math.min(count - 1, Math.floor(share * count)));
  return {
    size: [columns, rows],
    find: (across, down) => [clip(across, columns), clip(down, rows)],
    words: ([x, y]) => [`${figure.x_title} ${figure.x_names[x] ?? short(figure.x[x])}`,
      figure.y_title ? `${figure.y_title} ${figure.y_names[y] ?? short(figure.y[y])}` : "", short(figure.z[y][x])].filter(Boolean).join("\n"),
    show(mark, [x, y], frame) {
      mark.className = "cell";
      const wide = frame.width / columns, tall = frame.height / rows;
      Object.assign(mark.style, {left: `${frame.left + x * wide - 1}px`, top: `${frame.top + y * tall - 1}px`, width: `${wide + 2}px`, height: `${tall + 2}px`});
    },
  };
}

function dialReader(figure, svg) {
  const across = Number(svg.dataset.across), rows = Math.ceil(figure.dials.length / across);
  return {
    size: [figure.dials.length, 1],
    find: (right, down) => [Math.min(figure.dials.length - 1, Math.floor(down * rows) * across + Math.floor(right * across)), 0],
    words: ([n]) => { const dial = figure.dials[n]; return `${dial.name} · ${dial.note}\n${short(dial.seen)} → ${short(dial.met)} ×360°`; },
    show(mark, [n], frame) {
      mark.className = "cell";
      const wide = frame.width / across, tall = frame.height / rows;
      Object.assign(mark.style, {left: `${frame.left + (n % across) * wide}px`, top: `${frame.top + Math.floor(n / across) * tall}px`, width: `${wide}px`, height: `${tall}px`});
    },
  };
}

// Put a drawing into its place, and let its numbers be read.
export function fill(place, figure, drawing, speak) {
  const svg = document.importNode(new DOMParser().parseFromString(drawing, "image/svg+xml").documentElement, true);
  place.replaceChildren(svg);
  const reader = {lines: lineReader, heat: heatReader, dials: dialReader}[figure.kind](figure, svg);
  const mark = node("div", {hidden: true}), note = node("div", {className: "cursor", hidden: true});
  place.append(mark, note);
  let at = null;
  const hide = () => { mark.hidden = note.hidden = true; at = null; };
  function show(where) {
    at = where;
    const frame = frameOf(svg);
    mark.hidden = note.hidden = false;
    reader.show(mark, at, frame);
    note.textContent = reader.words(at);
    const middle = mark.offsetLeft + mark.offsetWidth / 2, room = place.clientWidth;
    Object.assign(note.style, middle > room / 2 ? {left: "auto", right: `${room - middle + 12}px`} : {right: "auto", left: `${middle + 12}px`});
    note.style.top = `${Math.max(0, Math.min(mark.offsetTop + 8, svg.clientHeight - note.offsetHeight - 4))}px`;
  }
  place.onpointermove = event => {
    const frame = frameOf(svg), box = svg.getBoundingClientRect();
    const across = (event.clientX - box.left - frame.left) / frame.width, down = (event.clientY - box.top - frame.top) / frame.height;
    if (across < 0 || across > 1 || down < 0 || down > 1) hide(); else show(reader.find(across, down));
  };
  place.onpointerdown = place.onpointermove;
  place.onpointerleave = hide;
  place.onblur = hide;
  place.onkeydown = event => {
    const step = {ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1]}[event.key];
    if (event.key === "Escape") return hide();
    if (!step) return;
    event.preventDefault();
    const [columns, rows] = reader.size, from = at ?? [-1, 0];
    show([Math.max(0, Math.min(columns - 1, from[0] + step[0])), Math.max(0, Math.min(rows - 1, from[1] + step[1]))]);
    speak(reader.words(at).replaceAll("\n", ", "));
  };
}

// A figure as PNG, twice as fine as on the page.
export async function savePng(address, name) {
  const text = await (await fetch(address)).text(), picture = new Image();
  picture.src = URL.createObjectURL(new Blob([text], {type: "image/svg+xml"}));
  await picture.decode();
  const canvas = node("canvas", {width: 2 * picture.naturalWidth, height: 2 * picture.naturalHeight});
  canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(picture.src);
  const link = node("a", {href: canvas.toDataURL("image/png"), download: name});
  link.click();
}

export {node};
