// The roofline: the highest rate that the machine allows at each intensity, and the cases below it.

const ROOF_HEIGHT = 420;
const ROOF_MARGIN = 4; // the axis extends by this factor beyond the outermost intensities

function readRoof(section) {
  const ceilings = list(section.ceilings);
  const slopes = ceilings.filter((ceiling) => ceiling?.bytes_per_second > 0);
  const flats = ceilings.filter((ceiling) => ceiling?.flops > 0).sort((a, b) => b.flops - a.flops);
  return {
    slopes, flats,
    points: list(section.points).filter((point) => point?.intensity > 0 && point?.flops > 0),
    steepest: Math.max(0, ...slopes.map((slope) => slope.bytes_per_second)) || Infinity,
    highest: Math.max(0, ...flats.map((flat) => flat.flops)) || Infinity,
    ridges: slopes.flatMap((slope) => flats.map((flat) =>
      ({ slope, flat, intensity: flat.flops / slope.bytes_per_second }))),
  };
}

// The rate that the highest ceilings allow at an intensity.
const ceilingAt = (roof, intensity) => Math.min(roof.highest, roof.steepest * intensity);

// The share of that rate that a point reached; null if the report has no ceiling.
function shareOf(roof, point) {
  const ceiling = ceilingAt(roof, point.intensity);
  return Number.isFinite(ceiling) ? point.flops / ceiling : null;
}

function roofScales(roof, width) {
  const box = { top: 30, bottom: ROOF_HEIGHT - 46, right: width - 14 };
  const across = [...roof.points, ...roof.ridges].map((one) => one.intensity);
  if (across.length === 0) across.push(1);
  const from = Math.min(...across) / ROOF_MARGIN, to = Math.max(...across) * ROOF_MARGIN;
  const up = [...roof.points, ...roof.flats].map((one) => one.flops);
  const y = makeScale({ scale: 'log', unit: 'flops' },
                      [...up, ceilingAt(roof, from), ceilingAt(roof, to)], [box.bottom, box.top], 7);
  box.left = labelRoom(y.ticks);
  const x = makeScale({ scale: 'log' }, [from, to], [box.left, box.right],
                      Math.max(2, Math.floor((box.right - box.left) / 64)));
  return { box, x, y, from, to };
}

// A ceiling ends where it meets the highest one of the other kind. Each is returned with the areas
// that its label covers, which the labels of points avoid.

function drawSlope(slope, roof, { x, y, from, to }, row) {
  const rate = slope.bytes_per_second;
  const begin = Math.max(from, y.low / rate);
  const end = roof.flats.length > 0 ? roof.highest / rate : to;
  const [x1, y1, x2, y2] = [x.at(begin), y.at(begin * rate), x.at(end), y.at(end * rate)];
  const angle = Math.atan2(y2 - y1, x2 - x1);
  const along = (distance) => [x1 + distance * Math.cos(angle), y1 + distance * Math.sin(angle)];
  const label = `${text(slope.name)}, ${formatRate(rate)}`;
  const start = 18 + 24 * row; // side by side if slopes are close
  const areas = [];
  for (let distance = start; distance < start + textRoom(label); distance += 10) {
    const [left, top] = along(distance);
    areas.push({ left: left - 8, right: left + 8, top: top - 18, bottom: top });
  }
  return { areas, node: svg('g', { class: 'ceiling' },
    svg('title', {}, label),
    svg('line', { x1, y1, x2, y2 }),
    svg('text', { y: -6, transform: `translate(${along(start).join(' ')}) ` +
                                    `rotate(${angle * 180 / Math.PI})` }, label)) };
}

function drawFlat(flat, roof, { box, x, y, from }, under) {
  const begin = roof.slopes.length > 0 ? flat.flops / roof.steepest : from;
  const label = `${text(flat.name)}, ${formatFlops(flat.flops)}`;
  const at = y.at(flat.flops), baseline = at + (under ? 15 : -6);
  return {
    areas: [{ left: box.right - 4 - textRoom(label), right: box.right,
              top: baseline - 12, bottom: baseline + 4 },
            { left: x.at(begin), right: box.right, top: at - 1, bottom: at + 1 }],
    node: svg('g', { class: 'ceiling' },
      svg('title', {}, label),
      svg('line', { x1: x.at(begin), y1: at, x2: box.right, y2: at }),
      svg('text', { x: box.right - 4, y: baseline, 'text-anchor': 'end' }, label)),
  };
}

function drawRidge(ridge, { x, y }) {
  return svg('g', { class: 'ridge' },
    svg('title', {}, `ridge of ${text(ridge.slope.name)} and ${text(ridge.flat.name)}: ` +
                     `${significant(ridge.intensity)}${GAP}FLOP/byte`),
    svg('circle', { cx: x.at(ridge.intensity), cy: y.at(ridge.flat.flops), r: 4 }));
}

// The first of a few places around a point where its label covers nothing. If there is none, the
// point has no label; its tooltip and the table still name it.
function placeLabel(at, length, box, taken) {
  const places = [[10, 4], [-10 - length, 4], [-length / 2, 21], [-length / 2, -13],
                  [8, 19], [8, -11], [-8 - length, 19], [-8 - length, -11]];
  for (const [dx, dy] of places) {
    const [left, baseline] = [at.x + dx, at.y + dy];
    const area = { left, right: left + length, top: baseline - 11, bottom: baseline + 3 };
    const inside = left >= box.left && area.right <= box.right &&
                   area.top >= 0 && area.bottom <= box.bottom;
    const free = taken.every((other) => area.right < other.left || area.left > other.right ||
                                        area.bottom < other.top || area.top > other.bottom);
    if (!inside || !free) continue;
    taken.push(area);
    return { x: left, y: baseline };
  }
  return null;
}

function drawRoofPoints(roof, { box, x, y }, taken) {
  const places = roof.points.map((point) => ({ x: x.at(point.intensity), y: y.at(point.flops) }));
  taken.push(...places.map((at) =>
    ({ left: at.x - 6, right: at.x + 6, top: at.y - 6, bottom: at.y + 6 })));
  const labels = roof.points.map((point, i) => {
    const place = placeLabel(places[i], textRoom(text(point.name)), box, taken);
    return place ? svg('text', { class: 'label', ...place }, text(point.name)) : null;
  });
  const dots = roof.points.map((point, i) => svg('g',
    { class: 'point', transform: `translate(${places[i].x} ${places[i].y})` },
    svg('title', {}, `${text(point.name)}: ${formatFlops(point.flops)} at ` +
      `${significant(point.intensity)}${GAP}FLOP/byte, ` +
      `${formatShare(shareOf(roof, point))} of the ceiling`),
    svg('circle', { r: 11, class: 'reach' }),
    svg('circle', { r: 5, class: 'case' })));
  return [...labels, ...dots];
}

function drawRoofline(section) {
  const roof = readRoof(section);
  const canvas = element('div', { class: 'canvas' });
  const isEmpty = roof.points.length + roof.slopes.length + roof.flats.length === 0;
  if (isEmpty) canvas.append(nothingMeasured());
  else onWidth(canvas, (width) => {
    const scales = roofScales(roof, width);
    const { box, x, y } = scales;
    const ceilings = [
      ...roof.slopes.map((slope, row) => drawSlope(slope, roof, scales, row)),
      ...roof.flats.map((flat, i) => drawFlat(flat, roof, scales,
        i > 0 && y.at(flat.flops) - y.at(roof.flats[i - 1].flops) < 20))];
    canvas.replaceChildren(svg('svg',
      { width, height: ROOF_HEIGHT, role: 'img', 'aria-label': text(section.title) || 'roofline' },
      axesFrame(box, x, y, 'intensity (FLOP/byte)', 'achieved (FLOP/s)'),
      ceilings.map((ceiling) => ceiling.node),
      roof.ridges.map((ridge) => drawRidge(ridge, scales)),
      drawRoofPoints(roof, scales, ceilings.flatMap((ceiling) => ceiling.areas))));
  });
  return element('div', { class: 'figure' }, canvas,
    textAlternative('The roofline as a table',
      [{ name: 'case' }, { name: 'FLOP/byte', numeric: true }, { name: 'achieved', numeric: true },
       { name: 'ceiling', numeric: true }, { name: 'of the ceiling', share: true }],
      roof.points.map((point) => [text(point.name), significant(point.intensity),
        formatFlops(point.flops), formatFlops(ceilingAt(roof, point.intensity)), shareOf(roof, point)])));
}
