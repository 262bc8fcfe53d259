/* Elements of the page; strings go in as text, never as markup. */

export const byId = (id) => document.getElementById(id);

export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/** Build a table; every row has a string for each column of the header. */
export function table(caption, header, rows) {
  const cell = (text, column) => {
    const made = element("td", { textContent: text });
    made.dataset.label = header[column];
    made.classList.toggle("number", /^[-+−]?\d/.test(text));
    made.classList.toggle("bad", /failed/.test(text));
    return made;
  };
  const made = element("table");
  if (caption) made.append(element("caption", { textContent: caption }));
  const names = header.map((name) => element("th", { scope: "col", textContent: name }));
  made.append(element("thead", {}, element("tr", {}, ...names)));
  made.append(element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map(cell)))));
  return element("div", { className: "scroll" }, made);
}

/** Replace the options of a select, each a value and its label, and choose one. */
export function fill(select, options, chosen) {
  select.replaceChildren(
    ...options.map(([value, label]) => {
      return new Option(label, value, false, String(value) === String(chosen));
    }),
  );
}
