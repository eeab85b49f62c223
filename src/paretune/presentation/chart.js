// Shows the axes that a reader chooses, and opens the run of a mark that is clicked.
(() => {
  const plot = document.getElementById("plot");
  if (!plot) return;
  const {first, axes, lines} = plot.layout.meta, last = plot.data.length - 1;
  const [across, up] = document.querySelectorAll("#front select"), logs = document.querySelectorAll("#front input");
  const link = document.getElementById("run"), usual = link.textContent;
  // MLflow's viewer shows a page in a frame from which no link opens, at an address that holds that of its server.
  const isViewer = location.protocol === "blob:";
  const server = isViewer && /^http/.test(location.pathname) ? new URL(location.pathname).origin : null;
  const chosen = () => [across, up].map(select => select.value);

  function show() {
    const [x, y] = chosen().map(name => axes[name]), swapped = lines[chosen().reverse().join("\n")];
    const line = lines[chosen().join("\n")] ?? swapped?.toReversed() ?? [[], []];
    const data = (axis, part) => axis.traces.map(trace => trace[part]);
    const bars = (axis, name) => ({[`${name}.arrayminus`]: data(axis, 1), [`${name}.array`]: data(axis, 2)});
    Plotly.update(plot, {x: [...data(x, 0), line[0]], y: [...data(y, 0), line[1]]}, {
      "xaxis.title.text": x.heading, "xaxis.type": logs[0].checked ? "log" : "linear", "xaxis.autorange": true,
      "yaxis.title.text": y.heading, "yaxis.type": logs[1].checked ? "log" : "linear", "yaxis.autorange": true,
    });
    const marks = [...Array(last - 1).keys()]; // all but the recommended ones and the line
    Plotly.restyle(plot, {...bars(x, "error_x"), ...bars(y, "error_y")}, marks);
    sessionStorage?.setItem("axes", JSON.stringify([...chosen(), ...[...logs].map(log => log.checked)]));
  }

  [across, up].forEach((select, at) => {
    select.value = first[at];
    logs[at].checked = axes[first[at]].log;
    select.addEventListener("change", () => { logs[at].checked = axes[select.value].log; show(); });
    logs[at].addEventListener("change", show);
  });
  plot.on("plotly_click", event => {
    const url = event.points[0].customdata;
    if (!url) return;
    const address = server ? url.replace(/^https?:\/\/[^/]+/, server) : url;
    const opens = isViewer ? document.createElement("code") : Object.assign(document.createElement("a"), {href: address});
    opens.textContent = address;
    link.replaceChildren("Its run: ", opens);
    if (!isViewer) window.open(address, "_blank", "noopener");
  });
})();
