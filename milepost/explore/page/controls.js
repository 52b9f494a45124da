// Controls: sliders with a number beside them, lists, and texts. What is typed goes to the server as it is: it says what is permitted.

import {node} from "/figures.js";

const FINE = 1000;
const toSlider = (c, value) => c.log ? FINE * Math.log(value / c.low) / Math.log(c.high / c.low) : value;
const fromSlider = (c, place) => {
  const value = c.log ? c.low * (c.high / c.low) ** (place / FINE) : place;
  return c.whole ? String(Math.round(value)) : String(Number(value.toPrecision(c.log ? 3 : 6)));
};

// One control: its element, and a way to set it. `changed(text, done)` is called with what the reader chose; done is false while a slider is dragged.
export function control(c, label, words, changed) {
  const box = node("div", {className: c.kind === "text" ? "control words" : "control"}), id = `c-${Math.random().toString(36).slice(2)}`;
  const name = node("label", {htmlFor: id}, label);
  if (c.kind === "choice") {
    const list = node("select", {id}, ...c.options.map(option => new Option(words[`option.${option}`] ?? option, option)));
    list.addEventListener("change", () => changed(list.value, true));
    box.append(name, list);
    return {box, set: value => { list.value = value; }};
  }
  if (c.kind === "text") {
    const field = node("input", {id, type: "text", spellcheck: false});
    field.addEventListener("input", () => changed(field.value, false));
    field.addEventListener("change", () => changed(field.value, true));
    box.append(name, field);
    return {box, set: value => { if (document.activeElement !== field) field.value = value; }};
  }
  const bounds = c.log ? {min: 0, max: FINE, step: 1} : {min: c.low, max: c.high, step: c.step};
  const range = node("input", {id, type: "range", ...bounds}), field = node("input", {type: "number", step: "any", ariaLabel: label.textContent ?? label});
  const said = value => { range.setAttribute("aria-valuetext", value); };
  range.addEventListener("input", () => { field.value = fromSlider(c, Number(range.value)); said(field.value); changed(field.value, false); });
  range.addEventListener("change", () => changed(field.value, true));
  field.addEventListener("input", () => { if (field.value !== "") { range.value = toSlider(c, Number(field.value)); said(field.value); changed(field.value, false); } });
  field.addEventListener("change", () => changed(field.value, true));
  box.append(name, field, range);
  return {box, set(value) {
    if (document.activeElement === field || document.activeElement === range && field.value !== "" && Number(field.value) === Number(value)) return;
    field.value = value; range.value = toSlider(c, value); said(value);
  }};
}
