// Filters the tables of "What goes where" by source and target: ?from=keras&to=onnx, or the two fields at the top of the page.
"use strict";
(() => {
  const tables = [...document.querySelectorAll("article table")].filter((one) => /^from/.test(one.rows[0].cells[0].textContent));
  if (!tables.length) return;
  const asked = new URLSearchParams(location.search);
  const form = document.createElement("form");
  form.setAttribute("role", "search");
  form.className = "pairs-filter";
  const field = {};
  for (const side of ["from", "to"]) {
    const label = document.createElement("label");
    const input = document.createElement("input");
    label.textContent = side + " ";
    label.style.marginRight = "1em";
    input.name = side;
    input.type = "search";
    input.placeholder = "any format";
    input.style.cssText = "border: 1px solid; border-radius: 3px; padding: 2px 6px; font: inherit; color: inherit; background: transparent";
    input.setAttribute("list", "pairs-formats");
    input.value = asked.get(side) || "";
    label.append(input);
    form.append(label);
    field[side] = input;
  }
  const names = new Set(tables.flatMap((one) => [...one.rows].map((row) => row.cells[0].textContent.trim()).slice(1)));
  const list = document.createElement("datalist");
  list.id = "pairs-formats";
  for (const name of [...names].sort()) list.append(new Option(name));
  const count = document.createElement("output");
  form.append(list, count);
  document.querySelector("article h1").after(form);

  const fits = (text, wanted) => text.trim().toLowerCase().includes(wanted.trim().toLowerCase());
  const apply = () => {
    let shown = 0;
    for (const table of tables) {
      const heads = [...table.rows[0].cells];
      const columns = heads.map((head, index) => index === 0 || fits(head.textContent, field.to.value));
      let rows = 0;
      for (const [index, row] of [...table.rows].entries()) {
        const visible = index === 0 || fits(row.cells[0].textContent, field.from.value);
        row.hidden = !visible;
        if (visible && index) rows += 1;
        [...row.cells].forEach((cell, column) => { cell.hidden = !columns[column]; });
      }
      shown += rows * (columns.filter(Boolean).length - 1);
    }
    count.textContent = shown + " pairs";
    const words = new URLSearchParams(Object.entries(field).filter(([, one]) => one.value).map(([side, one]) => [side, one.value]));
    history.replaceState(null, "", (words.size ? "?" + words : location.pathname) + location.hash);
  };
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  apply();
})();
