// A click on a column's heading sorts the table by that column: numbers by size, text by alphabet, empty cells last.
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
        const [a, b] = [value(one), value(other)], [m, n] = [parseFloat(a), parseFloat(b)];
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
