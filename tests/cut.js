// Words of figures that reach over the edge of their drawing: how many were looked at, and those that are cut off, with the pixels that are lost.
(() => {
  const found = {looked: 0, cut: []};
  for (const drawing of document.querySelectorAll("svg[role=img]")) {
    const paper = drawing.getBoundingClientRect();
    if (!paper.width) continue;
    for (const words of drawing.querySelectorAll("text")) {
      const box = words.getBoundingClientRect();
      const over = Math.max(paper.left - box.left, box.right - paper.right, paper.top - box.top, box.bottom - paper.bottom);
      found.looked += 1;
      if (over > 0.5) found.cut.push([drawing.getAttribute("aria-label"), words.textContent, over]);
    }
  }
  return found;
})()
