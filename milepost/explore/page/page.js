// The page: a state, which is the address; it asks the server for what the state shows, and puts it in place.
// One request at a time for each side: while a slider moves, the newest state waits for the last answer.

import {control} from "/controls.js";
import {fill, node} from "/figures.js";

const get = id => document.getElementById(id);
const pictures = get("pictures"), settings = get("settings"), trouble = get("trouble");
let start, state, sides = [], waiting = null, busy = false, moving = false, remembered = {}, fields = {};

// -- the state and the address --------------------------------------------------------------------------------------

function read() {
  const asked = Object.fromEntries(new URLSearchParams(location.search));
  const {view = "code", lang = navigator.language.startsWith("zh") ? "zh" : "en", a, b, ...values} = asked;
  const specs = [a ?? first(view, 0)];
  if (b !== undefined) specs.push(b);
  return {view, lang, specs, values};
}

const first = (view, n) => { const known = start?.views[view]?.encodings ?? ["rope"]; return known[n] ?? known[0]; };

function address() {
  const [a, b] = state.specs, query = {view: state.view, a, ...(b === undefined ? {} : {b}), ...state.values, lang: state.lang};
  return "/?" + new URLSearchParams(query);
}

// The first step of a move makes a new entry of the history, the others replace it: one step back undoes one move.
function write(done) {
  if (address() === location.pathname + location.search) { moving = moving && !done; return; }
  history[moving ? "replaceState" : "pushState"](null, "", address());
  moving = !done;
  for (const link of document.querySelectorAll("nav a")) link.href = "/?" + new URLSearchParams({view: link.dataset.view, lang: state.lang});
}

// -- asking -----------------------------------------------------------------------------------------------------------

function query(n, more = {}) {
  const moved = Object.fromEntries(Object.entries(sides[n]?.moved ?? {}).map(([path, value]) => ["set." + path, value]));
  return new URLSearchParams({encoding: state.specs[n], ...state.values, ...moved, lang: state.lang, width: sides[n].width(), ...more});
}

async function ask(n) {
  const wanted = `/api/${encodeURIComponent(state.view)}?${query(n)}`;
  if (wanted.length > start.longest) throw new Error(start.words.long.replace("{longest}", start.longest));
  let found;
  try {
    found = await fetch(wanted);
  } catch {
    throw new Error(start.words.unreachable);
  }
  const data = await found.json();
  if (data.error) throw new Error(data.error);
  return data;
}

// Show the state. `done` is false while something is being dragged or typed.
async function show(done = true) {
  waiting = {done: done || (waiting?.done ?? false)};
  document.body.dataset.ready = "no";
  if (busy) return;
  busy = true;
  while (waiting) {
    const now = waiting, sent = sides.map(side => ({...side.moved})), specs = [...state.specs], was = JSON.stringify([state.view, state.lang, state.specs.length]);
    waiting = null;
    const late = setTimeout(() => sides.forEach(side => side.box.classList.add("stale")), 400);
    try {
      const answers = await Promise.all(sides.map((_, n) => ask(n)));
      if (was !== JSON.stringify([state.view, state.lang, state.specs.length])) continue;
      answers.forEach((answer, n) => {
        for (const [path, value] of Object.entries(sent[n])) if (sides[n].moved[path] === value) delete sides[n].moved[path];
        if (!Object.keys(sides[n].moved).length && state.specs[n] === specs[n]) state.specs[n] = answer.spec;
        sides[n].set(answer);
      });
      trouble.hidden = true;
      if (waiting) waiting.done ||= now.done; else write(now.done);
    } catch (error) {
      if (!waiting) refuse(error.message);
      if (now.done) moving = false;
    } finally {
      clearTimeout(late);
      sides.forEach(side => side.box.classList.remove("stale"));
    }
  }
  busy = false;
  document.body.dataset.ready = "yes";
}

// The button stays one element: leaving a text field asks again, and an answer that came between pressing and
// releasing would take away the button under the pointer.
const refused = node("strong"), reason = node("span"), again = node("button", {type: "button"});
again.addEventListener("click", () => { const view = state.view in start.views ? state.view : "code"; delete remembered[view]; state = {...state, lang: start.language, view, specs: [first(view, 0)], values: {}}; build(); show(); });
trouble.replaceChildren(refused, reason, node("br"), again);

function refuse(why) {
  refused.textContent = start.words.refused + (pictures.querySelector("svg") ? " " + start.words.kept : "");
  reason.textContent = why;
  again.textContent = start.words.again;
  trouble.hidden = false;
}

// -- one side: an encoding, its sliders, its figures ------------------------------------------------------------------

function side(n) {
  const words = start.words, known = start.views[state.view]?.encodings ?? [];
  const list = node("select", {id: `encoding-${n}`}), spec = node("input", {id: `spec-${n}`, type: "text", spellcheck: false, autocapitalize: "off", placeholder: "rope(base=500000.0) + alibi"});
  list.append(...known.map(name => new Option(name, name)));
  list.value = state.specs[n].split("(")[0].trim();
  spec.value = state.specs[n];
  const parameters = node("div", {className: "parameters", role: "group", ariaLabel: words.parameters, hidden: true}), sentence = node("p", {className: "sentence"}), figures = node("div", {className: "figures"});
  const table = node("div", {className: "wide-table", hidden: true, tabIndex: 0}), formulas = node("details", {open: true}, node("summary", {}, words.formulas)), told = node("div");
  formulas.append(told);
  const chosen = node("div", {className: "chosen"},
    node("div", {}, node("label", {htmlFor: list.id}, words.encoding), list), node("div", {}, node("label", {htmlFor: spec.id}, words.spec), spec));
  const box = node("section", {className: "side", ariaLabel: `${words.encoding} ${n + 1}`}, node("div", {className: "encoding"}, chosen, parameters), sentence, figures, table, formulas);
  const made = {box, moved: {}, width: () => Math.max(240, Math.floor(pictures.clientWidth ? box.clientWidth : 640)), set};
  let shape = "", held = {};
  list.addEventListener("change", () => { if (list.value) { made.moved = {}; state.specs[n] = list.value; show(); } });
  spec.addEventListener("input", () => { made.moved = {}; state.specs[n] = spec.value; show(false); });
  spec.addEventListener("change", () => { state.specs[n] = spec.value; show(); });

  function set(answer) {
    list.replaceChildren(...known.map(name => new Option(name, name)));
    const name = answer.spec.split("(")[0].trim();
    if (known.includes(name) && !answer.spec.includes(" + ")) list.value = name;
    else { list.append(new Option(words.another, "")); list.value = ""; }
    if (document.activeElement !== spec) spec.value = answer.spec;
    const now = JSON.stringify(answer.controls.map(c => [c.name, c.kind, c.low, c.high, c.options]));
    if (now !== shape) {
      shape = now; held = {};
      for (const c of answer.controls) held[c.name] = control(c, breaking(c.label), {}, (text, done) => { made.moved[c.name] = text; show(done); });
      parameters.replaceChildren(...Object.values(held).map(one => one.box));
      parameters.hidden = !answer.controls.length;
    }
    for (const c of answer.controls) if (!(c.name in made.moved)) held[c.name].set(c.value);
    sentence.textContent = answer.sentence;
    draw(answer);
    table.hidden = !answer.table.length;
    const [head, ...rows] = answer.table;
    table.replaceChildren(...(head ? [node("table", {}, node("thead", {}, row(head, "th")), node("tbody", {}, ...rows.map(cells => row(cells, "td"))))] : []));
    told.replaceChildren(...answer.pages.flatMap(page => [node("h3", {}, page.title), node("pre", {tabIndex: 0}, page.formula || " "),
      ...(page.reference ? [node("p", {className: "reference"}, page.reference)] : [])].filter(one => one.tagName !== "PRE" || page.formula)));
  }

  function draw(answer) {
    while (figures.children.length > answer.figures.length) figures.lastChild.remove();
    answer.figures.forEach((figure, at) => {
      if (!figures.children[at]) figures.append(node("figure", {}, node("div", {className: "drawing", tabIndex: 0, role: "group"}), node("figcaption")));
      const [place, caption] = figures.children[at].children;
      place.ariaLabel = `${figure.title}. ${words.reading}`;
      fill(place, figure, answer.svg[at], text => { get("spoken").textContent = text; });
      figures.children[at].classList.toggle("wide", place.firstChild.width.baseVal.value > made.width() / 2);
      const file = kind => `/file/${answer.view}.${kind}?${query(n, {encoding: answer.spec, figure: at})}`, name = `milepost-${answer.view}-${at}`;
      const links = ["png", "svg", "csv", "json"].map(kind => node("a", {href: file(kind), download: `${name}.${kind}`}, words[kind]));
      caption.replaceChildren(node("span", {}, words.download), ...links);
    });
  }
  return made;
}

// A name that may go on in another line after a dot or an underscore.
const breaking = name => node("code", {}, ...name.split(/(?<=[._])/).flatMap(piece => [piece, node("wbr")]));

const row = (cells, kind) => node("tr", {}, ...cells.map(cell => node(kind, {}, cell)));

// -- the whole page ---------------------------------------------------------------------------------------------------

function build() {
  const words = start.words, view = start.views[state.view];
  document.documentElement.lang = state.lang === "zh" ? "zh-CN" : "en";
  document.title = `${words[`view.${state.view}`] ?? ""} · ${words.title}`;
  for (const place of document.querySelectorAll("[data-word]")) place.textContent = words[place.dataset.word];
  get("views").ariaLabel = words.views;
  get("views").replaceChildren(...Object.keys(start.views).map(name => {
    const link = node("a", {href: "/?" + new URLSearchParams({view: name, lang: state.lang})}, words[`view.${name}`]);
    link.dataset.view = name;
    if (name === state.view) link.setAttribute("aria-current", "page");
    link.addEventListener("click", event => { if (!event.metaKey && !event.ctrlKey && !event.shiftKey) { event.preventDefault(); go(name); } });
    return link;
  }));
  get("views").querySelector("[aria-current]")?.scrollIntoView({block: "nearest", inline: "center"});
  get("name").textContent = words[`view.${state.view}`] ?? "";
  get("intro").textContent = words[`intro.${state.view}`] ?? "";
  fields = {};
  for (const c of view?.controls ?? []) {
    fields[c.name] = control(c, document.createTextNode(words[`control.${c.name}`]), words, (text, done) => { state.values[c.name] = text; show(done); });
    fields[c.name].set(state.values[c.name] ?? c.value);
  }
  settings.replaceChildren(...Object.values(fields).map(one => one.box));
  get("compare").checked = state.specs.length > 1;
  sides = state.specs.map((_, n) => side(n));
  pictures.replaceChildren(...sides.map(one => one.box));
  pictures.classList.toggle("two", sides.length > 1);
}

function go(name) {
  remembered[state.view] = {specs: state.specs, values: state.values};
  const base = spec => spec.split("(")[0].trim(), fresh = remembered[name] ?? {specs: [first(name, 0)], values: {}};
  const carried = state.specs.length === 1 && base(state.specs[0]) === first(name, 0) && !state.specs[0].includes(" + ") ? [...state.specs] : [...fresh.specs];
  state = {...state, view: name, specs: carried, values: {...fresh.values}};
  build(); show();
  get("name").scrollIntoView({block: "nearest"});
}

async function open() {
  start = await (await fetch(`/api/start?lang=${new URLSearchParams(location.search).get("lang") === "zh" ? "zh" : "en"}`)).json();
  state = read();
  if (state.lang !== start.language && ["en", "zh"].includes(state.lang)) start = await (await fetch(`/api/start?lang=${state.lang}`)).json();
  build();
  moving = true;
  await show();
}

get("compare").addEventListener("change", () => { state.specs = get("compare").checked ? [state.specs[0], first(state.view, 1)] : [state.specs[0]]; build(); show(); });
get("language").addEventListener("click", async () => { state.lang = state.lang === "zh" ? "en" : "zh"; start = await (await fetch(`/api/start?lang=${state.lang}`)).json(); build(); show(); });
get("link").addEventListener("click", async () => {
  try { await navigator.clipboard.writeText(location.href); get("link").textContent = start.words.copied; setTimeout(() => { get("link").textContent = start.words.link; }, 1500); }
  catch { prompt(start.words.link, location.href); }
});
settings.addEventListener("submit", event => event.preventDefault());
addEventListener("popstate", open);
let wide = 0, resized;
new ResizeObserver(() => {
  if (wide && Math.abs(wide - pictures.clientWidth) > 8) { clearTimeout(resized); resized = setTimeout(() => show(false), 120); }
  wide = pictures.clientWidth;
}).observe(pictures);
open();
