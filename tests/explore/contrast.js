// Every word's contrast with what is behind it, by WCAG's formula.
() => {
  const read = text => { const found = text.match(/[\d.]+/g).map(Number); return {rgb: found.slice(0, 3), alpha: found[3] ?? 1}; };
  const light = rgb => { const [r, g, b] = rgb.map(v => v / 255)
      .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
  function behind(node) {
    for (; node; node = node.parentElement) { const c = read(getComputedStyle(node).backgroundColor); if (c.alpha === 1) return c.rgb; }
    return [255, 255, 255];
  }
  const poor = [];
  let looked = 0;
  for (const node of document.querySelectorAll("body *")) {
    const words = [...node.childNodes].some(child => child.nodeType === 3 && child.textContent.trim()) || ["INPUT", "SELECT"].includes(node.tagName) && node.type !== "range" && node.type !== "checkbox";
    const box = node.getBoundingClientRect();
    if (!words || !box.width || !box.height || node.closest("#spoken, .skip, option, title")) continue;
    const style = getComputedStyle(node), ink = read(node instanceof SVGElement ? style.fill : style.color), paper = behind(node instanceof SVGElement ? node.closest(".drawing") : node);
    const mixed = ink.rgb.map((v, n) => v * ink.alpha + paper[n] * (1 - ink.alpha)), [a, b] = [light(mixed), light(paper)].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize), large = size >= 24 || size >= 18.66 && Number(style.fontWeight) >= 700, ratio = (a + .05) / (b + .05);
    looked += 1;
    if (ratio < (large ? 3 : 4.5)) poor.push([node.tagName, node.textContent.slice(0, 30), ratio.toFixed(2)]);
  }
  return {looked, poor};
}
