// Plays asciicasts of plain text; see docs/record.py. Without JavaScript, or where the file cannot be read, the page's text remains.
for (const box of document.querySelectorAll(".terminal")) {
  fetch(box.dataset.cast).then((answer) => answer.text()).then((text) => {
    const events = text.trim().split("\n").slice(1).map((line) => JSON.parse(line));
    const screen = Object.assign(document.createElement("pre"), { style: "height: 26em; overflow: auto; font-size: .62rem; padding: 1em; background: #1e2129; color: #d5d9e0" });
    const button = Object.assign(document.createElement("button"), { className: "md-button", textContent: "Play" });
    const length = Object.assign(document.createElement("progress"), { max: events.at(-1)[0], value: 0, style: "width: 100%" });
    let timer = 0;
    const play = (number) => {
      const [at, , output] = events[number];
      screen.textContent += output.replaceAll("\r", "");
      screen.scrollTop = screen.scrollHeight;
      length.value = at;
      if (number + 1 < events.length) timer = setTimeout(play, 1000 * (events[number + 1][0] - at), number + 1);
      else button.textContent = "Play again";
    };
    button.onclick = () => { clearTimeout(timer); screen.textContent = ""; button.textContent = "From the beginning"; play(0); };
    screen.textContent = events.slice(0, 40).map(([, , output]) => output.replaceAll("\r", "")).join("");
    box.append(button, length, screen);
  }).catch(() => {});
}
