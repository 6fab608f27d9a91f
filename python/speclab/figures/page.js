// page.js - a click on a column's name, or Enter on it, sorts the table by that column; again, the other way round. Cells without a number stay last.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "descending" || (!head.hasAttribute("aria-sort") && !head.classList.contains("n")) ? 1 : -1;
    const key = row => {
      const cell = row.cells[column], value = cell.dataset.v;
      return value === undefined ? cell.textContent.trim() : value === "" ? null : Number(value);
    };
    const rows = [...table.tBodies[0].rows].map(row => [key(row), row]);
    rows.sort(([a], [b]) => a === null || b === null ? (a === null) - (b === null)
      : down * (typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true })));
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down > 0 ? "ascending" : "descending");
    table.tBodies[0].append(...rows.map(([, row]) => row));
  }));
}
