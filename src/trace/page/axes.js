// Scales with ticks in sensible units, and the frame of an SVG plot.

// The smallest of 1, 2, 5 (times a power of ten) that makes no more than `count` steps.
function niceStep(span, count) {
  const power = 10 ** Math.floor(Math.log10(span / count));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => span / step <= count) ?? span;
}

function steps(begin, end, step) {
  const values = [];
  for (let i = Math.ceil(begin / step - 1e-9); i * step <= end + step * 1e-9; ++i) {
    values.push(i * step);
  }
  return values;
}

// Writes a number with as many decimals as the step between ticks needs.
function fixed(value, step) {
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const number = Math.abs(value) < step / 2 ? 0 : value; // no "-0"
  return number.toLocaleString('en', { minimumFractionDigits: decimals,
                                       maximumFractionDigits: decimals });
}

// Ticks of a time window, all in the unit that suits its end.
function timeTicks(begin, end, count) {
  const [size, unit] = unitFor(Math.max(Math.abs(begin), Math.abs(end)), TIME_UNITS);
  const step = niceStep((end - begin) / size, Math.max(1, count));
  return steps(begin / size, end / size, step)
    .map((value) => ({ value: value * size, label: fixed(value, step) + GAP + unit }));
}

function linearScale(values, unit, [from, to], count) {
  let low = Math.min(...values), high = Math.max(...values);
  if (low === high) [low, high] = low === 0 ? [0, 1] : [Math.min(0, 2 * low), Math.max(0, 2 * high)];
  else if (low > 0 && low < high / 2) low = 0;
  const ns = nanosecondsIn(unit);
  const [size, name] = ns ? unitFor(high * ns, TIME_UNITS)
    : unit === 'bytes' ? unitFor(high, BYTE_UNITS) : [1, unit === 'count' ? '' : unit];
  const perUnit = size / (ns ?? 1);
  let step = niceStep((high - low) / perUnit, count);
  if (unit === 'count') step = Math.max(1, step);
  low = Math.floor(low / perUnit / step + 1e-9) * step * perUnit;
  high = Math.ceil(high / perUnit / step - 1e-9) * step * perUnit;
  return {
    unit: name,
    at: (value) => from + (value - low) / (high - low) * (to - from),
    ticks: steps(low / perUnit, high / perUnit, step)
      .map((value) => ({ value: value * perUnit, label: fixed(value, step) })),
  };
}

// Bytes tick at powers of two, everything else at powers of ten or, over few decades, at 1, 2, 5.
function logScale(values, unit, [from, to], count, pad = 0.04) {
  const base = unit === 'bytes' ? 2 : 10;
  const log = (value) => Math.log(value) / Math.log(base);
  let low = log(Math.min(...values)), high = log(Math.max(...values));
  if (high - low < 1e-9) [low, high] = [low - 1, high + 1];
  [low, high] = [low - pad * (high - low), high + pad * (high - low)];
  const every = Math.max(1, Math.ceil((high - low) / count));
  let ticks = steps(low, high, every).map((exponent) => base ** Math.round(exponent));
  if (base === 10 && high - low < count / 3) {
    ticks = steps(Math.floor(low), high, 1).flatMap((exponent) =>
      [1, 2, 5].map((factor) => factor * 10 ** Math.round(exponent)));
    ticks = ticks.filter((value) => log(value) >= low && log(value) <= high);
  }
  return {
    unit: '',
    low: base ** low,
    at: (value) => from + (log(value) - low) / (high - low) * (to - from),
    ticks: ticks.map((value) => ({ value, label: formatTick(value, unit) })),
  };
}

function formatTick(value, unit) {
  if (unit === 'flops') return scaled(value, DECIMAL_PREFIXES);
  return unit === 'bytes' || nanosecondsIn(unit) ? formatValue(value, unit) : significant(value);
}

// A scale over the values that it can show: a logarithmic one only shows values above zero.
function makeScale(axis, values, range, count) {
  const isLog = axis?.scale === 'log';
  const usable = values.filter((value) => Number.isFinite(value) && (!isLog || value > 0));
  const make = isLog ? logScale : linearScale;
  const scale = make(usable.length > 0 ? usable : [1, 10], text(axis?.unit), range, count);
  return { ...scale, holds: (value) => Number.isFinite(value) && (!isLog || value > 0) };
}

function axisTitle(axis, scale) {
  const named = text(axis?.label);
  const own = ['bytes', 'count'].includes(axis?.unit) || nanosecondsIn(axis?.unit);
  const unit = scale.unit || (own ? '' : text(axis?.unit));
  return unit ? `${named} (${unit})`.trim() : named;
}

// The grid, the tick labels and the axes' titles. `box` is the plotting area.
function axesFrame(box, x, y, xTitle, yTitle) {
  const parts = [];
  for (const { value, label } of y.ticks) {
    const at = y.at(value);
    parts.push(svg('line', { class: 'grid', x1: box.left, x2: box.right, y1: at, y2: at }),
               svg('text', { class: 'tick', x: box.left - 8, y: at + 4, 'text-anchor': 'end' },
                 label));
  }
  for (const { value, label } of x.ticks) {
    const at = x.at(value);
    parts.push(svg('line', { class: 'grid', x1: at, x2: at, y1: box.top, y2: box.bottom }),
               svg('text', { class: 'tick', x: at, y: box.bottom + 18, 'text-anchor': 'middle' },
                 label));
  }
  parts.push(
    svg('line', { class: 'axis', x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }),
    svg('text', { class: 'axis-title', x: 2, y: 14 }, yTitle),
    svg('text', { class: 'axis-title', x: box.right, y: box.bottom + 38, 'text-anchor': 'end' },
      xTitle));
  return svg('g', { 'aria-hidden': 'true' }, parts);
}

// The width of a text at the font size that page.css gives labels.
const ruler = document.createElement('canvas').getContext('2d');
function textRoom(string) {
  ruler.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  return ruler.measureText(string).width;
}

// The width of the widest label.
function labelRoom(ticks) {
  return 14 + Math.max(...ticks.map((tick) => textRoom(tick.label)), 14);
}
