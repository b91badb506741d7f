// Facts and tables, and the tables that are text alternatives of figures.

const HIGHEST_SHARE = 1.02; // more than noise explains: then a measurement is wrong

function drawFacts(section) {
  const rows = list(section.rows);
  if (rows.length === 0) return nothingMeasured();
  return element('dl', { class: rows.length <= 4 ? 'facts few' : 'facts' }, rows.map((row) => {
    const [label, value, note] = list(row).map(text);
    return element('div', {},
      element('dt', {}, label ?? ''),
      element('dd', { class: 'value' }, value ?? ''),
      note ? element('dd', { class: 'fact-note' }, note) : null);
  }));
}

function shareCell(share) {
  const over = share > HIGHEST_SHARE;
  const bar = element('span', { class: over ? 'bar beyond' : 'bar', 'aria-hidden': 'true' },
    element('span'));
  bar.firstChild.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  const title = over ? 'above 102%: not a valid measurement' : null;
  return element('td', { class: 'share', title },
    element('span', { class: 'share-value' }, formatShare(share)), bar, over ? ' !' : '');
}

function tableCell(column, value) {
  if (column.share && typeof value === 'number') return shareCell(value);
  const shown = value === null || value === undefined ? NONE : String(value);
  if (column.share) {
    return element('td', { class: 'share' }, element('span', { class: 'share-value' }, shown));
  }
  return element('td', { class: column.numeric ? 'numeric' : null }, shown);
}

function drawTable(section) {
  const columns = list(section.columns);
  if (list(section.rows).length === 0) return nothingMeasured();
  const head = columns.map((column) => element('th',
    { scope: 'col', class: column.share ? 'share' : column.numeric ? 'numeric' : null },
    text(column.name)));
  const body = list(section.rows).map((row) => element('tr', {},
    columns.map((column, i) => tableCell(column, list(row)[i]))));
  // A region of its own that takes focus, so that the keyboard can scroll it.
  return element('div', { class: 'scroll', tabindex: '0', role: 'region',
                          'aria-label': text(section.title) || 'table' },
    element('table', {}, element('thead', {}, element('tr', {}, head)), element('tbody', {}, body)));
}

function textAlternative(summary, columns, rows) {
  return element('details', {}, element('summary', {}, summary),
    drawTable({ title: summary, columns, rows }));
}
