// Makes a chart of chart.py interactive: other axes, tooltips, links to runs, arrow keys, and a size that fits the window.
// The SVG is complete without it. All texts come from the page and are set as text, never as HTML.
(() => {
  const box = document.querySelector(".chart-box");
  if (!box) return;
  const data = JSON.parse(box.querySelector("script[type='application/json']").textContent);
  const [svg, tip, note] = [box.querySelector("svg.chart"), box.querySelector(".tip"), box.querySelector(".broken")];
  const marks = [...svg.querySelectorAll(".mark")];
  const [frames, line] = [[...svg.querySelectorAll(".frame")], svg.querySelector(".line path")];
  const selects = [...box.querySelectorAll("select")], predictions = box.querySelector("input[type='checkbox']");
  const texts = marks.map(mark => mark.querySelector("title").textContent.split("\n"));
  const label = mark => mark.querySelector(".label text");
  // MLflow's artifact viewer shows a page in a frame from which no link opens, at an address that holds the server's.
  const isViewer = location.protocol === "blob:";
  const server = isViewer && /^http/.test(location.pathname) ? new URL(location.pathname).origin : null;
  const address = at => server ? data.addresses[at].replace(/^https?:\/\/[^/]+/, server) : data.addresses[at];
  // The marks are drawn in the wide layout over the first axes; `size` is the layout that is shown.
  const [wide, narrow] = data.layouts;
  let size = wide, shown = [], pinned = null, current = null;

  const toX = (share, layout = size) => layout.left + share * (layout.width - layout.left - layout.right);
  const toY = (share, layout = size) => layout.height - layout.bottom - share * (layout.height - layout.top - layout.bottom);
  const drawn = marks.map((_, at) => {
    const [x, y] = data.first.map(name => data.axes[name].positions[at]?.[0] ?? 0);
    return {x: toX(x), y: toY(y)};
  });

  function place(mark, at, x, y) {
    mark.classList.toggle("absent", !x || !y);
    if (!x || !y) return;
    const [across, up] = [toX(x[0]) - drawn[at].x, toY(y[0]) - drawn[at].y];
    mark.setAttribute("transform", `translate(${across} ${up})`);
    const [[left, right], [bottom, top]] = [x.slice(1).map(end => toX(end) - across), y.slice(1).map(end => toY(end) - up)];
    mark.querySelector(".whisker path")
      ?.setAttribute("d", `M${left} ${drawn[at].y}H${right}M${drawn[at].x} ${bottom}V${top}`);
    if (label(mark)) {
      const isLeft = toX(x[0]) > size.width * 0.6;
      label(mark).setAttribute("x", drawn[at].x + (isLeft ? -14 : 14));
      label(mark).removeAttribute("transform");
      label(mark).style.textAnchor = isLeft ? "end" : "start";
    }
  }

  function show() {
    const [xName, yName] = selects.map(select => select.value);
    const [x, y] = [data.axes[xName], data.axes[yName]];
    svg.setAttribute("viewBox", `0 0 ${size.width} ${size.height}`);
    svg.setAttribute("width", size.width);
    svg.setAttribute("height", size.height);
    svg.setAttribute("aria-label", `${y.heading} over ${x.heading}. ${svg.dataset.about}`);
    const chosen = `.${size.name}:is(.x.${x.frame}, .y.${y.frame}, .legend)`;
    frames.forEach(frame => frame.classList.toggle("chosen", frame.matches(chosen)));
    marks.forEach((mark, at) => {
      mark.classList.toggle("picked", data.rings[at].some(axes => axes.every(name => [xName, yName].includes(name))));
      place(mark, at, x.positions[at], y.positions[at]);
    });
    box.classList.toggle("predictions", Boolean(predictions?.checked));
    const swapped = (data.lines[`${yName}\n${xName}`] ?? []).map(([up, across]) => [across, up]);
    const corners = data.lines[`${xName}\n${yName}`] ?? swapped;
    line?.setAttribute("d", corners.map(([one, other], at) => `${at ? "L" : "M"}${toX(one)} ${toY(other)}`).join(""));
    note.textContent = [x.note, xName === yName ? "" : y.note].filter(Boolean).join(" ");
    const isBest = mark => !mark.matches(".dominated, .unmet") || mark.matches(".picked");
    shown = marks.map((_, at) => at).filter(at => x.positions[at] && y.positions[at])
      .filter(at => predictions?.checked || !marks[at].matches(".predicted"))
      .map(at => ({at, x: toX(x.positions[at][0]), y: toY(y.positions[at][0]), isBest: isBest(marks[at])}))
      .sort((one, other) => one.x - other.x || one.y - other.y);
    hide();
  }

  function fit() {
    const layout = svg.parentElement.clientWidth < 560 ? narrow : wide;
    if (layout === size && shown.length) return;
    size = layout;
    const mark = tip.hidden ? null : current, wasPinned = pinned !== null;
    show();
    const point = shown.find(one => marks[one.at] === mark);
    if (point) showTip(point, wasPinned);
  }

  function showTip(point, isPinned = false) {
    current?.classList.remove("current");
    current = marks[point.at];
    current.classList.add("current");
    const lines = texts[point.at].map((text, number) => {
      const element = document.createElement(number ? "div" : "strong");
      element.textContent = text;
      return element;
    });
    if (address(point.at) && !isPinned && !isViewer) {
      lines.push(Object.assign(document.createElement("em"), {textContent: "Click, or press Enter, to reach the run"}));
    } else if (address(point.at)) {
      const link = document.createElement(isViewer ? "code" : "a");
      link.textContent = isViewer ? address(point.at) : "Open the run in MLflow";
      if (!isViewer) Object.assign(link, {href: address(point.at), target: "_blank", rel: "noopener"});
      lines.push(link);
    }
    tip.replaceChildren(...lines);
    tip.hidden = false;
    tip.classList.toggle("pinned", isPinned);
    pinned = isPinned ? point : null;
    // Beside the mark, on the side with more room; over the whole width of a small window below it.
    const scale = svg.clientWidth / size.width, wide = tip.parentElement.clientWidth;
    const isRight = point.x > size.width / 2;
    const left = isRight ? point.x * scale - tip.offsetWidth - 18 : point.x * scale + 18;
    tip.style.left = `${Math.min(Math.max(left, 0), Math.max(wide - tip.offsetWidth, 0))}px`;
    const top = wide < 560 ? point.y * scale + 18 : point.y * scale - tip.offsetHeight / 2;
    tip.style.top = `${Math.max(top, 0)}px`;
  }

  function hide() {
    tip.hidden = true;
    pinned = null;
    current?.classList.remove("current");
  }

  function nearest(event) {
    const from = svg.getBoundingClientRect(), scale = size.width / from.width;
    const [x, y] = [(event.clientX - from.left) * scale, (event.clientY - from.top) * scale];
    // What is on the front wins over what it hides or nearly hides.
    const distance = point => Math.hypot(point.x - x, point.y - y) - (point.isBest ? 6 : 0);
    const best = shown.reduce((one, other) => one && distance(one) < distance(other) ? one : other, null);
    return best && distance(best) < 18 ? best : null;
  }

  function focus(point) {
    marks.forEach(mark => mark.setAttribute("tabindex", -1));
    marks[point.at].setAttribute("tabindex", 0);
    marks[point.at].focus();
  }

  function press(event) {
    const at = shown.findIndex(point => marks[point.at] === event.target);
    if (event.key === "Escape") return hide();
    if (at < 0) return;
    const next = {
      ArrowRight: () => shown.slice(at + 1).find(point => point.isBest),
      ArrowLeft: () => shown.slice(0, at).reverse().find(point => point.isBest),
      ArrowUp: () => shown[at + 1],
      ArrowDown: () => shown[at - 1],
      Home: () => shown.find(point => point.isBest),
      End: () => [...shown].reverse().find(point => point.isBest),
    }[event.key];
    if (next) {
      event.preventDefault();
      const point = next();
      if (point) focus(point);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      showTip(shown[at], true);
      tip.querySelector("a")?.focus();
    }
  }

  marks.forEach((mark, at) => {
    mark.querySelector("title").remove(); // the browser's own tooltip would come beside ours
    mark.setAttribute("role", "img");
    mark.setAttribute("aria-label", texts[at].join("; "));
    mark.setAttribute("tabindex", -1);
    mark.addEventListener("focus", () => showTip(shown.find(point => point.at === at)));
  });
  const firstBest = marks.findLast(mark => mark.matches(".picked")) ?? marks.findLast(mark => mark.matches(".front"));
  (firstBest ?? marks[0])?.setAttribute("tabindex", 0);
  svg.addEventListener("keydown", press);
  tip.addEventListener("keydown", event => {
    if (event.key !== "Escape") return;
    current?.focus();
    hide();
  });
  svg.addEventListener("pointermove", event => {
    if (pinned) return;
    const point = nearest(event);
    if (point) showTip(point);
    else if (document.activeElement !== current) hide();
  });
  svg.addEventListener("pointerleave", () => pinned || hide());
  svg.addEventListener("click", event => {
    const point = nearest(event);
    if (point) showTip(point, true);
    else hide();
  });
  selects.forEach((select, number) => { select.value = data.first[number]; });
  [...selects, ...(predictions ? [predictions] : [])].forEach(control => control.addEventListener("change", () => {
    show();
    // The point that the keyboard stands on may not be drawn any more.
    if (!shown.some(point => marks[point.at].getAttribute("tabindex") === "0") && shown.length) {
      marks[shown[0].at].setAttribute("tabindex", 0);
    }
  }));
  box.classList.add("alive");
  new ResizeObserver(fit).observe(svg.parentElement);
  fit();
  // What is folded is printed too.
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(fold => { fold.open = true; }));
  if (isViewer) {
    for (const link of document.querySelectorAll("a[target]")) link.replaceWith(...link.childNodes);
  }
})();
