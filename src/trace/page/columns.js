// What to draw of a lane's row: one bar per interval where there is room, and where there is none,
// one shade per pixel column that says how much of its time was busy. However many intervals a row
// has, the number of rectangles is bounded by the number of columns.

const BAR_COLUMNS = 3; // narrower intervals are merged
const SHADES = 32;
const FAINTEST = 1 / 8; // a column with any work at all stays visible

// Calls bar(index in the lane, left, right) and shade(left, right, share) in pixel columns, left to
// right. `cover` is scratch of at least `columns` floats, shared between rows.
function mergeRow(row, view, columns, cover, bar, shade) {
  const scale = columns / (view.end - view.begin);
  const [first, last] = touching(row, view.begin, view.end);
  cover.fill(0, 0, columns);
  let coveredTo = -Infinity, lastBar = -Infinity;
  for (let i = first; i < last; ++i) {
    const left = (row.begin[i] - view.begin) * scale;
    const right = left + row.length[i] * scale;
    if (right < 0) continue;
    if (right - left >= BAR_COLUMNS && left - lastBar >= BAR_COLUMNS) {
      bar(row.indices[i], Math.max(left, -1), Math.min(right, columns + 1));
      lastBar = left;
    } else if (right > coveredTo) {
      addCover(cover, columns, Math.max(left, coveredTo), right);
    }
    coveredTo = Math.max(coveredTo, right);
  }
  for (let left = 0; left < columns;) {
    const share = shadeOf(cover[left]);
    let right = left + 1;
    while (right < columns && shadeOf(cover[right]) === share) ++right;
    if (share > 0) shade(left, right, share);
    left = right;
  }
}

function addCover(cover, columns, left, right) {
  const from = Math.max(0, left), to = Math.min(columns, right);
  if (left === right) { // an interval without length is visible too
    const column = Math.min(Math.floor(from), columns - 1);
    cover[column] = Math.max(cover[column], 0.5);
  }
  for (let column = Math.floor(from); column < to; ++column) {
    cover[column] += Math.min(to, column + 1) - Math.max(from, column);
  }
}

function shadeOf(cover) {
  if (cover === 0) return 0;
  return Math.max(FAINTEST, Math.min(SHADES, Math.round(cover * SHADES)) / SHADES);
}
