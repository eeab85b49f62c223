// A click on a mark opens its run.
(() => {
  const plot = document.getElementById("plot"), link = document.getElementById("run");
  // MLflow's viewer shows a page in a frame that cannot open links. The frame's address contains the server's address.
  const isViewer = location.protocol === "blob:";
  const server = isViewer && /^http/.test(location.pathname) ? new URL(location.pathname).origin : null;
  plot?.on("plotly_click", event => {
    const url = event.points[0].customdata;
    if (!url) return;
    const address = server ? url.replace(/^https?:\/\/[^/]+/, server) : url;
    const opens = isViewer ? document.createElement("code") : Object.assign(document.createElement("a"), {href: address});
    opens.textContent = address;
    link.replaceChildren("Its run: ", opens);
    if (!isViewer) window.open(address, "_blank", "noopener");
  });
})();
