// A ring of slots between threads that fill them and threads that use them. The slots' memory is
// the caller's; the ring says who may touch which slot, and when.
//
//   Producer producer(ring);                  Consumer consumer(ring);
//   for (...) {                               for (...) {
//     unsigned slot = producer.acquire();       unsigned slot = consumer.wait();
//     // write it                               // read it
//     producer.commit();                        consumer.release();
//   }                                         }
//
// Every producer takes part in every slot, every consumer too, in the same order. Each may hold
// several slots at once: where a producer acquires p before it commits the first of them and a
// consumer waits for c before it releases the first, depth must be at least p + c - 1.
//
// The ring is a template over its barrier, so that tests run this very file on the host:
//
//   init(count)           a phase completes after `count` arrivals and all announced bytes
//   arrive()
//   arrive_expect(bytes)  announces bytes that asynchronous copies bring, and arrives
//   try_wait(parity)      one look: has the phase of this parity completed?
//   wait(parity)          returns when it has
//
// A new barrier is in its phase of parity 0; the phase before, of parity 1, counts as completed.
#pragma once

#include "penstock/kit/config.h"

namespace ps::kit {

// Lives in shared memory.
template <class Barrier, unsigned depth>
struct Ring {
  static_assert(depth > 0, "a ring has at least one slot");

  Barrier full[depth];   // a phase completes when the slot has been filled,
  Barrier empty[depth];  // when it has been given back

  // By one thread; a fence and a barrier of the block stand between this and all other use. A slot
  // gets `commits` arrivals, one of every producer, and `releases`, one of every consumer that does
  // not skip.
  PENSTOCK_HD void init(unsigned commits, unsigned releases) {
    for (unsigned slot = 0; slot < depth; ++slot) {
      full[slot].init(commits);
      empty[slot].init(releases);
    }
  }
};

// Where in the ring, and on an even or an odd round.
template <unsigned depth>
struct Cursor {
  unsigned slot;
  unsigned parity;

  // Moves on; returns the slot that it was at.
  PENSTOCK_HD unsigned advance() {
    const unsigned was = slot;
    if (++slot == depth) {
      slot = 0;
      parity ^= 1;
    }
    return was;
  }
};

// A thread's place as it fills slots. Small: lives in registers.
template <class Barrier, unsigned depth>
class Producer {
 public:
  PENSTOCK_HD explicit Producer(Ring<Barrier, depth>& ring) : ring_(&ring) {}

  // One look: may the next slot be filled? Does not move.
  PENSTOCK_HD bool try_acquire() const { return empty().try_wait(next_.parity); }

  // Waits until the next slot may be filled, and returns it.
  PENSTOCK_HD unsigned acquire() {
    empty().wait(next_.parity);
    return next_.advance();
  }

  // The same, and announces that asynchronous copies bring `bytes` onto full(slot): they commit
  // the slot, this thread does not. What it acquired without bytes must have been committed.
  PENSTOCK_HD unsigned acquire(unsigned bytes) {
    const unsigned slot = acquire();
    full(slot).arrive_expect(bytes);
    oldest_ = next_;
    return slot;
  }

  // The oldest acquired slot is filled.
  PENSTOCK_HD void commit() { full(oldest_.advance()).arrive(); }

  // Waits until every slot has been released; acquires nothing more after that. For what may only
  // happen behind the last release, such as the end of a block that others arrive at from outside.
  PENSTOCK_HD void drain() {
    for (unsigned slot = 0; slot < depth; ++slot) acquire();
  }

  // What completes when `slot` is filled: copies take it as their barrier.
  PENSTOCK_HD Barrier& full(unsigned slot) const { return ring_->full[slot]; }

 private:
  PENSTOCK_HD Barrier& empty() const { return ring_->empty[next_.slot]; }

  Ring<Barrier, depth>* ring_;
  Cursor<depth> next_{0, 1};    // to acquire; on the first round the slots are empty already
  Cursor<depth> oldest_{0, 0};  // to commit
};

// A thread's place as it uses slots. Small: lives in registers.
template <class Barrier, unsigned depth>
class Consumer {
 public:
  PENSTOCK_HD explicit Consumer(Ring<Barrier, depth>& ring) : ring_(&ring) {}

  // One look: is the next slot filled? Does not move.
  PENSTOCK_HD bool try_wait() const { return full().try_wait(next_.parity); }

  // Waits until the next slot is filled, and returns it. `ready`: what try_wait() said of it
  // before; true spares another look.
  PENSTOCK_HD unsigned wait(bool ready = false) {
    if (!ready) full().wait(next_.parity);
    return next_.advance();
  }

  // The oldest slot that was waited for may be filled again. What this thread read of it must be
  // in registers by then, used or copied: a load that was only issued can still be waiting behind
  // stores when the next copy lands, and then reads that.
  PENSTOCK_HD void release() { empty(oldest_.advance()).arrive(); }

  // Moves on like release() without arriving: another thread of the group does, or this one did
  // elsewhere, at the barriers of other blocks.
  PENSTOCK_HD void skip_release() { oldest_.advance(); }

  // The slot that release() would give back.
  PENSTOCK_HD unsigned oldest() const { return oldest_.slot; }

  // What completes when `slot` may be filled again.
  PENSTOCK_HD Barrier& empty(unsigned slot) const { return ring_->empty[slot]; }

 private:
  PENSTOCK_HD Barrier& full() const { return ring_->full[next_.slot]; }

  Ring<Barrier, depth>* ring_;
  Cursor<depth> next_{0, 0};    // to wait for
  Cursor<depth> oldest_{0, 0};  // to release
};

}  // namespace ps::kit
