// Numbers with units, in the same format as the library's messages.

const GAP = '\u00a0'; // a number and its unit stay on one line
const NONE = '–';

const TIME_UNITS = [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']]; // sizes in nanoseconds
const BYTE_UNITS = [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB'], [1, 'B']];
const DECIMAL_PREFIXES = [[1e15, 'P'], [1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k'], [1, '']];

// Four significant digits without trailing zeros.
function significant(value) {
  return Number.isFinite(value)
    ? value.toLocaleString('en', { maximumSignificantDigits: 4 }) : NONE;
}

// The largest unit that leaves a value of at least 1; the last one when none does.
function unitFor(value, units) {
  return units.find(([size]) => Math.abs(value) >= size) ?? units[units.length - 1];
}

function scaled(value, units, suffix = '') {
  if (!Number.isFinite(value)) return NONE;
  const [size, name] = unitFor(value, units);
  const unit = name + suffix;
  return significant(value / size) + (unit ? GAP + unit : '');
}

const formatTime = (ns) => scaled(ns, TIME_UNITS);
const formatBytes = (bytes) => scaled(bytes, BYTE_UNITS);
const formatRate = (perSecond) => scaled(perSecond, DECIMAL_PREFIXES, 'B/s');
const formatFlops = (perSecond) => scaled(perSecond, DECIMAL_PREFIXES, 'FLOP/s');
const formatShare = (share) => (Number.isFinite(share) ? `${(share * 100).toFixed(1)}%` : NONE);

// How many nanoseconds a unit has; undefined if it is not a unit of time.
function nanosecondsIn(unit) {
  return { ns: 1, us: 1e3, 'µs': 1e3, ms: 1e6, s: 1e9 }[unit];
}

// A value with its unit, for tooltips and tables.
function formatValue(value, unit) {
  if (!Number.isFinite(value)) return NONE;
  if (unit === 'bytes') return formatBytes(value);
  if (nanosecondsIn(unit)) return formatTime(value * nanosecondsIn(unit));
  return significant(value) + (unit && unit !== 'count' ? GAP + unit : '');
}
