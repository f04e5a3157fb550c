// What there is to see on the page: an object as browsertest.go takes it.
(() => {
  const visible = element => element.getClientRects().length > 0;
  const rgba = text => {
    const parts = text.match(/[\d.]+/g).map(Number);
    return parts.length > 3 ? parts : [...parts, 1];
  };
  const behind = element => {
    for (; element; element = element.parentElement) {
      const color = rgba(getComputedStyle(element).backgroundColor);
      if (color[3] > 0) return color.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const hasText = element => [...element.childNodes].some(n => n.nodeType === Node.TEXT_NODE && n.data.trim());
  const all = [...document.body.querySelectorAll("*")].filter(visible);
  const isSVG = element => element instanceof SVGElement;
  const name = element => element.tagName.toLowerCase();
  const width = document.documentElement.clientWidth;
  const within = (inner, outer) => inner.left >= outer.left - 1 && inner.right <= outer.right + 1 && inner.top >= outer.top - 1 && inner.bottom <= outer.bottom + 1;

  const plots = all.filter(e => e.matches("svg.plot")).map(plot => {
    const box = plot.getBoundingClientRect();
    const parts = [...plot.querySelectorAll("text, path")].filter(e => visible(e) && (e.tagName === "path" || e.textContent));
    const texts = parts.filter(e => e.tagName === "text").map(e => [e.textContent, e.getBoundingClientRect()]);
    const overlapping = [];
    texts.forEach(([a, p], i) => texts.slice(i + 1).forEach(([b, q]) => {
      // Boxes are higher than their letters.
      if (p.left < q.right && q.left < p.right && p.top + 3 < q.bottom - 3 && q.top + 3 < p.bottom - 3) overlapping.push(a + ", " + b);
    }));
    return {
      Title: plot.querySelector("title").textContent,
      Width: box.width, Height: box.height,
      Lines: [...plot.querySelectorAll("path.line")].map(e => e.getAttribute("d")),
      Points: plot.querySelectorAll("path.dot").length,
      Outside: parts.filter(e => !within(e.getBoundingClientRect(), box)).map(e => e.textContent || "path " + e.getAttribute("d").slice(0, 60)),
      Overlapping: overlapping,
    };
  });

  return {
    Inner: innerWidth,
    Scroll: document.documentElement.scrollWidth,
    Wide: all.filter(e => !e.closest(".scroll > *") && !(isSVG(e) && e.ownerSVGElement) && (e.getBoundingClientRect().right > width + 1 || e.getBoundingClientRect().left < -1)).map(name),
    Plots: plots,
    Texts: all.filter(e => hasText(e) && !e.closest("caption, title, desc, script, style")).map(e => ({
      What: name(e) + " " + e.textContent.trim().slice(0, 20),
      Color: rgba(isSVG(e) ? getComputedStyle(e).fill : getComputedStyle(e).color).slice(0, 3),
      Behind: behind(e),
    })),
    Strokes: all.filter(e => e.matches("path.line, path.dot, path.axis")).map(e => ({
      What: e.getAttribute("class"),
      Color: rgba(getComputedStyle(e).stroke).slice(0, 3),
      Behind: behind(e),
    })),
    Tables: all.filter(e => e.matches("table")).map(e => ({Width: e.getBoundingClientRect().width, Height: e.getBoundingClientRect().height})),
  };
})()
