// Builds the page. Data may hold anything, so it becomes text nodes and attributes, never markup.

const SVG = 'http://www.w3.org/2000/svg';

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null) node.setAttribute(name, value);
  }
  for (const child of children.flat()) {
    if (child !== undefined && child !== null) node.append(child); // a string becomes a text node
  }
  return node;
}

function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

const list = (value) => (Array.isArray(value) ? value : []);
const text = (value) => (value === undefined || value === null ? '' : String(value));

const nothingMeasured = () => element('p', { class: 'note' }, 'No data.');

// Calls `draw` with the node's width now and whenever it changes.
function onWidth(node, draw) {
  let drawn = 0;
  new ResizeObserver(() => {
    const width = Math.floor(node.clientWidth);
    if (width > 0 && width !== drawn) draw((drawn = width));
  }).observe(node);
}
