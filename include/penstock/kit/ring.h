// A ring of slots between producer and consumer threads of a kernel. The caller owns the slots'
// memory; the ring synchronises access to it.
//
//   Producer producer(ring);                  Consumer consumer(ring);
//   for (...) {                               for (...) {
//     unsigned slot = producer.acquire();       unsigned slot = consumer.wait();
//     // write it                               // read it
//     producer.commit();                        consumer.release();
//   }                                         }
//
// Every producer and every consumer takes part in every slot, in order, unless a consumer leaves
// slots to other consumers with skip(). They may hold several slots at once: if a producer acquires
// p slots before it commits the first, and a consumer waits for c slots before it releases the
// first, depth must be at least p + c - 1.
//
// The barrier is a template parameter, so that tests can run the ring on the host. It has:
//
//   init(count)           a phase completes after `count` arrivals and all announced bytes
//   arrive()
//   arrive_expect(bytes)  announces bytes of asynchronous copies, and arrives
//   try_wait(parity)      whether the phase of this parity has completed
//   test_wait(parity)     the same, and never suspends the thread; only test_acquire() and
//                         Consumer::test_wait() need it
//   wait(parity)          returns when the phase of this parity has completed
//
// The first phase has parity 0. The phase before it, of parity 1, counts as completed.
#pragma once

#include "penstock/kit/config.h"

namespace ps::kit {

// The barriers of the ring. Lives in shared memory.
template <class Barrier, unsigned depth>
struct Ring {
  static_assert(depth > 0, "a ring has at least one slot");

  Barrier full[depth];   // a phase completes when all producers have committed the slot
  Barrier empty[depth];  // a phase completes when all consumers have released the slot

  // Call from one thread, then fence_barrier_init(), then synchronise the block. `commits` is the
  // number of producer threads, `releases` the number of consumer threads that call release() for
  // the same slot.
  PENSTOCK_HD void init(unsigned commits, unsigned releases) {
    for (unsigned slot = 0; slot < depth; ++slot) {
      full[slot].init(commits);
      empty[slot].init(releases);
    }
  }
};

// A position in the ring: the slot, and the parity of its phase.
template <unsigned depth>
struct Cursor {
  unsigned slot;
  unsigned parity;

  // Moves to the next slot and returns the current one.
  PENSTOCK_HD unsigned advance() {
    const unsigned was = slot;
    if (++slot == depth) {
      slot = 0;
      parity ^= 1;
    }
    return was;
  }

  // Moves ahead by `count` slots.
  PENSTOCK_HD void advance_by(unsigned count) {
    const unsigned end = slot + count;
    slot = end % depth;
    parity ^= end / depth & 1;
  }
};

// The state of one producer thread. Kept in registers.
template <class Barrier, unsigned depth>
class Producer {
 public:
  PENSTOCK_HD explicit Producer(Ring<Barrier, depth>& ring) : ring_(&ring) {}

  // Whether acquire() would return at once. Does not acquire.
  PENSTOCK_HD bool try_acquire() const { return empty().try_wait(next_.parity); }

  // The same for a thread that has something else to watch: it is never suspended.
  PENSTOCK_HD bool test_acquire() const { return empty().test_wait(next_.parity); }

  // Waits until the next slot is empty and returns its index.
  PENSTOCK_HD unsigned acquire() {
    empty().wait(next_.parity);
    return next_.advance();
  }

  // As acquire(), for slots that asynchronous copies fill. Announces `bytes` on full(slot); the
  // slot is committed when they have been copied, so do not call commit(). Slots acquired without
  // bytes must have been committed before.
  PENSTOCK_HD unsigned acquire(unsigned bytes) {
    const unsigned slot = acquire();
    full(slot).arrive_expect(bytes);
    oldest_ = next_;
    return slot;
  }

  // Commits the oldest acquired slot: its data is visible to consumers that wait for it.
  PENSTOCK_HD void commit() { full(oldest_.advance()).arrive(); }

  // Waits until all slots have been released. The last call on a producer, for instance before a
  // block exits at whose barriers other blocks of the cluster arrive.
  PENSTOCK_HD void drain() {
    for (unsigned slot = 0; slot < depth; ++slot) acquire();
  }

  // The barrier to pass to asynchronous copies that fill `slot`.
  PENSTOCK_HD Barrier& full(unsigned slot) const { return ring_->full[slot]; }

 private:
  PENSTOCK_HD Barrier& empty() const { return ring_->empty[next_.slot]; }

  Ring<Barrier, depth>* ring_;
  Cursor<depth> next_{0, 1};    // to acquire; all slots are empty at first
  Cursor<depth> oldest_{0, 0};  // to commit
};

// The state of one consumer thread. Kept in registers.
template <class Barrier, unsigned depth>
class Consumer {
 public:
  PENSTOCK_HD explicit Consumer(Ring<Barrier, depth>& ring) : ring_(&ring) {}

  // Whether wait() would return at once. Does not wait.
  PENSTOCK_HD bool try_wait() const { return full().try_wait(next_.parity); }

  // The same for a thread that has something else to watch: it is never suspended.
  PENSTOCK_HD bool test_wait() const { return full().test_wait(next_.parity); }

  // Waits until the next slot is committed and returns its index. Pass the result of try_wait() as
  // `ready` to skip a second check.
  PENSTOCK_HD unsigned wait(bool ready = false) {
    if (!ready) full().wait(next_.parity);
    return next_.advance();
  }

  // Releases the oldest slot that was waited for. All values read from the slot must have arrived
  // in registers: use or copy them first. A load that was only issued may still be pending when the
  // slot is overwritten.
  PENSTOCK_HD void release() { empty(oldest_.advance()).arrive(); }

  // Advances like release() but does not arrive, because another thread arrives for the group or
  // this thread has arrived at the barriers of other blocks.
  PENSTOCK_HD void skip_release() { oldest_.advance(); }

  // Leaves the next `count` slots to another consumer: neither waits for them nor releases them.
  // `count` may exceed the depth. Call it when all slots that were waited for are released.
  //
  // For consumers that take runs of slots alternately, as in a ping-pong schedule: of two that take
  // `steps` slots each, the second begins with skip(steps), and both call skip(steps) after each of
  // their runs. Two rules:
  //   - Each slot is released by the consumer that takes it, so the `releases` of Ring::init() are
  //     those of one consumer, not of both.
  //   - The next wait() may follow only after the other consumer has waited for all slots that were
  //     skipped, for instance behind a named barrier. Phases are told apart by their parity alone,
  //     so a consumer that is a round ahead takes an old phase for the one that it waits for.
  PENSTOCK_HD void skip(unsigned count) {
    next_.advance_by(count);
    oldest_ = next_;
  }

  // The slot that release() would release.
  PENSTOCK_HD unsigned oldest() const { return oldest_.slot; }

  // The barrier at which consumers of `slot` arrive.
  PENSTOCK_HD Barrier& empty(unsigned slot) const { return ring_->empty[slot]; }

 private:
  PENSTOCK_HD Barrier& full() const { return ring_->full[next_.slot]; }

  Ring<Barrier, depth>* ring_;
  Cursor<depth> next_{0, 0};    // to wait for
  Cursor<depth> oldest_{0, 0};  // to release
};

}  // namespace ps::kit
