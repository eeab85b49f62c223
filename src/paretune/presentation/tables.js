// A click on a column's heading sorts the table by that column: numbers and durations, such as "1 h 5 m", by size, text
// by alphabet, empty cells last.
const SECONDS = {h: 3600, m: 60, s: 1};
const size = text => {
  if (!/^([\d.]+ [hms]( |$))+$/.test(text)) return parseFloat(text);
  const parts = text.split(" ");
  return parts.reduce((sum, part, at) => at % 2 ? sum + parseFloat(parts[at - 1]) * SECONDS[part] : sum, 0);
};
for (const table of document.querySelectorAll("table.sortable")) {
  table.querySelectorAll("thead th").forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      const value = row => row.cells[column].textContent.trim().replaceAll(",", "");
      const compare = (one, other) => {
        const [a, b] = [value(one), value(other)], [m, n] = [size(a), size(b)];
        if (a === "" || b === "") return (a === "") - (b === "");
        const order = !isNaN(m) && !isNaN(n) && m !== n ? m - n : a.localeCompare(b);
        return down ? -order : order;
      };
      const rows = [...table.tBodies[0].rows].sort(compare);
      table.querySelectorAll("th").forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      table.tBodies[0].append(...rows);
    });
  });
}
