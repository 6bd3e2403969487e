// Headings of sortable tables become buttons: numbers from the largest, names from the first; again turns the order.
document.querySelectorAll("table.sortable").forEach((table) => {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const body = table.tBodies[0];
      const value = (row) => row.cells[column].dataset.value;
      const asNumber = (text) => (/inf$/.test(text) ? (text[0] === "-" ? -Infinity : Infinity) : Number(text));
      const names = [...body.rows].some((row) => Number.isNaN(asNumber(value(row))));
      const before = heading.getAttribute("aria-sort");
      const rising = before === null ? names : before === "descending";
      const compare = names
        ? (a, b) => value(a).localeCompare(value(b), undefined, { numeric: true })
        : (a, b) => asNumber(value(a)) - asNumber(value(b)) || 0;
      const rows = [...body.rows].sort((a, b) => (rising ? compare(a, b) : compare(b, a)));
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", rising ? "ascending" : "descending");
      body.append(...rows);
    });
  });
});
