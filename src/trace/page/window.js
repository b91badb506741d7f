// The time window that a timeline shows: never empty, never beyond the run.

const LEAST_NS = 50; // the clocks are not more accurate

class TimeWindow {
  constructor(begin, end) {
    this.first = begin;
    this.last = end > begin ? end : begin + 1;
    this.least = Math.min(LEAST_NS, this.last - this.first);
    this.whole();
  }

  get span() { return this.end - this.begin; }
  get isWhole() { return this.begin === this.first && this.end === this.last; }

  whole() { this.show(this.first, this.last); }

  show(begin, end) {
    const span = Math.min(Math.max(end - begin, this.least), this.last - this.first);
    this.begin = Math.min(Math.max(begin, this.first), this.last - span);
    this.end = Math.min(this.begin + span, this.last);
  }

  pan(by) { this.show(this.begin + by, this.begin + by + this.span); }

  // Zooms so that the time `about` stays at its place on the screen.
  zoom(factor, about = (this.begin + this.end) / 2) {
    const span = Math.min(Math.max(this.span / factor, this.least), this.last - this.first);
    const left = (about - this.begin) / this.span;
    this.show(about - left * span, about - left * span + span);
  }

  // Moves, and widens if needed, so that the interval is visible.
  reveal(begin, end) {
    if (begin >= this.begin && end <= this.end) return;
    const span = Math.max(this.span, (end - begin) * 2);
    const middle = (begin + end) / 2;
    this.show(middle - span / 2, middle + span / 2);
  }
}
