// A plot of series over a common axis, as SVG for the available width.

const SERIES_COLOURS = 6;
const DASHES = ['', '6 4', '2 3', '9 3 2 3'];
const PLOT_HEIGHT = 320;

// The shapes of marks, as paths around 0,0. Shapes and dashes distinguish series without colour.
const MARKS = ['M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z', 'M-3.5-3.5h7v7h-7z', 'M0-5 5 0 0 5-5 0z',
               'M0-4.6 4.6 3.6h-9.2z'];

function seriesStyle(i) {
  return { stroke: `var(--series-${1 + (i % SERIES_COLOURS)})`, dash: DASHES[i % DASHES.length],
           mark: MARKS[i % MARKS.length] };
}

function seriesSwatch(series, i) {
  const style = seriesStyle(i);
  return svg('svg', { width: 30, height: 12, viewBox: '-15 -6 30 12', 'aria-hidden': 'true' },
    series.line === false ? null
      : svg('path', { d: 'M-15 0H15', class: 'line', stroke: style.stroke,
                      'stroke-dasharray': style.dash }),
    series.marks === false ? null : svg('path', { d: style.mark, fill: style.stroke }));
}

function drawSeries(series, i, x, y, axes) {
  const style = seriesStyle(i);
  const points = list(series.points).filter((point) => x.holds(point?.[0]) && y.holds(point?.[1]));
  const placed = points.map(([px, py]) => [x.at(px).toFixed(1), y.at(py).toFixed(1)]);
  const parts = [];
  if (series.line !== false && placed.length > 1) {
    parts.push(svg('path', { class: 'line', stroke: style.stroke, 'stroke-dasharray': style.dash,
                             d: `M${placed.map((at) => at.join(' ')).join('L')}` }));
  }
  placed.forEach(([left, top], n) => {
    const [px, py] = points[n];
    const label = `${text(series.name)}: ${formatValue(px, axes.x?.unit)}, ` +
                  formatValue(py, axes.y?.unit);
    parts.push(svg('g', { class: 'point', transform: `translate(${left} ${top})` },
      svg('title', {}, label),
      svg('circle', { r: 10, class: 'reach' }),
      series.marks === false && placed.length > 1 ? null
        : svg('path', { d: style.mark, fill: style.stroke })));
  });
  return svg('g', { class: 'series' }, parts);
}

function drawMarker(marker, x, box, row) {
  const at = x.at(marker.x), leftwards = at > (box.left + box.right) / 2;
  return svg('g', { class: 'marker' },
    svg('line', { x1: at, x2: at, y1: box.top, y2: box.bottom }),
    svg('text', { x: at + (leftwards ? -6 : 6), y: box.top + 13 + 16 * row,
                  'text-anchor': leftwards ? 'end' : 'start' }, text(marker.name)));
}

function drawPlot(section) {
  const series = list(section.series), axes = { x: section.x, y: section.y };
  const points = series.flatMap((one) => list(one.points)).filter(Array.isArray);
  const markers = list(section.markers).filter((marker) => Number.isFinite(marker?.x));
  const canvas = element('div', { class: 'canvas' });

  if (points.length === 0) canvas.append(nothingMeasured());
  else onWidth(canvas, (width) => {
    const box = { top: 28, bottom: PLOT_HEIGHT - 46, right: width - 14 };
    const y = makeScale(axes.y, points.map((point) => point[1]), [box.bottom, box.top], 6);
    box.left = labelRoom(y.ticks);
    const across = [...points.map((point) => point[0]), ...markers.map((marker) => marker.x)];
    const x = makeScale(axes.x, across, [box.left, box.right],
                        Math.max(2, Math.floor((box.right - box.left) / 72)));
    canvas.replaceChildren(svg('svg',
      { width, height: PLOT_HEIGHT, role: 'img', 'aria-label': text(section.title) || 'plot' },
      axesFrame(box, x, y, axisTitle(axes.x, x), axisTitle(axes.y, y)),
      markers.filter((marker) => x.holds(marker.x))
        .map((marker, row) => drawMarker(marker, x, box, row)),
      series.map((one, i) => drawSeries(one, i, x, y, axes))));
  });

  const rows = series.flatMap((one) => list(one.points).filter(Array.isArray).map(([px, py]) =>
    [text(one.name), formatValue(px, axes.x?.unit), formatValue(py, axes.y?.unit)]));
  return element('div', { class: 'figure' },
    element('ul', { class: 'legend' }, series.map((one, i) =>
      element('li', {}, seriesSwatch(one, i), text(one.name)))),
    canvas,
    textAlternative('The plot as a table',
      [{ name: 'series' }, { name: text(axes.x?.label), numeric: true },
       { name: text(axes.y?.label), numeric: true }], rows));
}
