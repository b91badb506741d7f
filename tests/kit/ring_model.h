// All interleavings of small cases of kit/ring.h. The actors hold the shipped Producer and Consumer
// and take one step at a time on a barrier without threads; a search walks through every state that
// some order of steps can reach, and notes what breaks a property.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <vector>

#include "penstock/kit/ring.h"

namespace ps::test {

// What the ring must never do.
class Violation : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A wait that would block: the actor's step is not to be had in this state.
class Blocked : public std::logic_error {
 public:
  Blocked() : std::logic_error("a wait that blocks") {}
};

// What can be wrong with the barriers of one kind, as if the cursors that use them were wrong.
enum class Fault : std::uint8_t {
  none,
  open,      // waits for nothing
  inverted,  // begins with the other parity
  stuck,     // looks for the parity of the first round for ever
};

// An mbarrier's arithmetic, one word of it. Nothing in here waits.
class ModelBarrier {
 public:
  void init(unsigned count) {
    count_ = static_cast<std::uint8_t>(count);
    pending_ = count_;
  }
  void break_as(Fault fault, unsigned first_parity) {
    fault_ = static_cast<std::uint8_t>(static_cast<unsigned>(fault) << 1 | first_parity);
  }

  void arrive() { arrive_expect(0); }
  void arrive_expect(unsigned bytes) {
    if (pending_ == 0) throw Violation("an arrival too many");
    bytes_ += bytes;
    --pending_;
    turn();
  }
  void complete(unsigned bytes) {
    bytes_ -= bytes;  // past zero where too few were announced
    turn();
  }

  bool try_wait(unsigned parity) const {
    switch (static_cast<Fault>(fault_ >> 1)) {
      case Fault::none:
        break;
      case Fault::open:
        return true;
      case Fault::inverted:
        parity ^= 1;
        break;
      case Fault::stuck:
        parity = fault_ & 1;
        break;
    }
    return phase_ != parity;
  }
  void wait(unsigned parity) const {
    if (!try_wait(parity)) throw Blocked();
  }

 private:
  void turn() {
    if (pending_ != 0 || bytes_ != 0) return;
    phase_ ^= 1;
    pending_ = count_;
  }

  std::uint8_t count_ = 0, pending_ = 0, phase_ = 0, fault_ = 0;
  std::uint32_t bytes_ = 0;  // announced and still to come
};

// Who uses the ring, and how.
struct RingCase {
  unsigned depth = 1;
  unsigned producers = 1;  // up to 2
  unsigned consumers = 1;  // up to 3
  unsigned ahead = 1;      // slots that a producer acquires before it commits the oldest
  unsigned held = 1;       // slots that a consumer waits for before it releases the oldest
  unsigned pieces = 0;     // not 0: copies commit, each slot in so many pieces, in any order
  bool pairs = false;      // a consumer is two threads in step that release by turns
  bool drain = false;      // producers drain the ring at the end
  unsigned run = 0;        // not 0: consumers take runs of so many slots by turns, and skip others

  // Ways to get it wrong.
  Fault empty = Fault::none, full = Fault::none;
  int more_commits = 0, more_releases = 0;  // beside the arrivals that there are
  int more_bytes = 0;                       // announced beside the bytes that come
  bool commit_first = false;                // before the slot is written
  bool release_first = false;               // before the slot is read
  bool skip_first = false;                  // before the last slot of a run is released
  bool unordered = false;                   // runs begin before the ones before them have waited
};

struct Explored {
  std::map<std::string, std::string> failures;  // each with steps that lead to it
  std::size_t states = 0;
  std::size_t ends = 0;  // states in which everybody is done
};

template <unsigned depth>
class Explorer {
 public:
  explicit Explorer(const RingCase& given)
      : case_(given), items_(std::max(2 * depth, 2 * given.run * given.consumers) + 1) {
    const unsigned releases = given.run > 0 ? 1 : given.consumers;
    live_.ring.init(given.producers + given.more_commits, releases + given.more_releases);
    for (unsigned c = 0; c < given.consumers; ++c) skip(live_.consumers[c], c * given.run);
    for (ModelBarrier& barrier : live_.ring.full) barrier.break_as(given.full, 0);
    for (ModelBarrier& barrier : live_.ring.empty) barrier.break_as(given.empty, 1);
  }

  Explored run() {
    explore();
    result_.states = seen_.size();
    return result_;
  }

 private:
  static constexpr unsigned max_producers = 2, max_consumers = 3, max_pieces = 2;
  static constexpr unsigned piece_bytes[max_pieces] = {1, 2};

  struct Filling {
    explicit Filling(kit::Ring<ModelBarrier, depth>& ring) : shipped(ring) {}
    kit::Producer<ModelBarrier, depth> shipped;
    std::uint16_t acquired = 0, written = 0, committed = 0, drained = 0;
  };
  struct Using {
    explicit Using(kit::Ring<ModelBarrier, depth>& ring) : shipped(ring), partner(ring) {}
    kit::Consumer<ModelBarrier, depth> shipped, partner;
    std::uint16_t waited = 0, read = 0, released = 0, unused = 0;
  };
  // What is in a slot: of every producer some pieces. 0 is neither the old value nor the new.
  struct Contents {
    std::uint8_t value[max_producers][max_pieces] = {};
    std::uint8_t coming[max_producers][max_pieces] = {};  // what a copy on its way brings
  };
  // The actors point at the ring beside them, so steps are taken in live_ alone. Copies of it are
  // only kept, and go back there.
  struct State {
    kit::Ring<ModelBarrier, depth> ring;
    Contents slots[depth];
    Filling producers[max_producers] = {Filling(ring), Filling(ring)};
    Using consumers[max_consumers] = {Using(ring), Using(ring), Using(ring)};
  };
  static_assert(std::is_trivially_copyable_v<State>);
  static_assert(std::has_unique_object_representations_v<State>);  // bytes tell states apart

  struct Step {
    enum Who : std::uint8_t { producer, consumer, copy } who;
    unsigned actor;
    unsigned slot = 0, piece = 0;  // of a copy
  };

  void explore() {
    if (!seen_.insert(key()).second) return;
    const State here = live_;
    bool moved = false;
    const auto attempt = [&](const Step& step) {
      path_.push_back(step);
      try {
        if (take(step)) {
          moved = true;
          explore();
          live_ = here;
        }
      } catch (const Violation& violation) {
        moved = true;
        note(violation.what());
        live_ = here;
      }
      path_.pop_back();
    };
    for (unsigned p = 0; p < case_.producers; ++p) attempt({Step::producer, p});
    for (unsigned c = 0; c < case_.consumers; ++c) attempt({Step::consumer, c});
    for (unsigned slot = 0; slot < depth; ++slot) {
      for (unsigned p = 0; p < case_.producers; ++p) {
        for (unsigned piece = 0; piece < case_.pieces; ++piece) {
          attempt({Step::copy, p, slot, piece});
        }
      }
    }
    if (moved) return;
    if (done()) {
      ++result_.ends;
    } else {
      note("deadlock");
    }
  }

  void note(const std::string& failure) {
    std::string path;
    for (const Step& step : path_) path += " " + name(step);
    result_.failures.emplace(failure, path);
  }

  // False, and nothing has changed, where the actor has to wait or has nothing to do.
  bool take(const Step& step) {
    switch (step.who) {
      case Step::producer:
        return fill(step.actor, live_.producers[step.actor]);
      case Step::consumer:
        return use(live_.consumers[step.actor]);
      case Step::copy:
        return land(step.actor, step.slot, step.piece);
    }
    return false;
  }

  bool fill(unsigned p, Filling& producer) {
    if (producer.written < producer.committed) {  // only with commit_first
      write(p, producer);
      return true;
    }
    const bool wants = producer.acquired < items_ &&
                       producer.acquired - producer.committed < static_cast<int>(case_.ahead);
    if (wants) {
      if (!producer.shipped.try_acquire()) return false;
      begin(p, producer);
      return true;
    }
    if (producer.committed < producer.acquired) {
      if (!case_.commit_first) write(p, producer);
      producer.shipped.commit();
      ++producer.committed;
      return true;
    }
    return case_.drain && producer.drained == 0 && drain(producer);
  }

  // Acquires a slot. Writing it begins here and ends in write(), or when the copies land.
  void begin(unsigned p, Filling& producer) {
    const unsigned item = producer.acquired++;
    const bool asynchronous = case_.pieces > 0;
    unsigned bytes = case_.more_bytes;
    for (unsigned piece = 0; piece < case_.pieces; ++piece) bytes += piece_bytes[piece];
    for (unsigned c = 0; c < case_.consumers; ++c) {
      if (item >= depth && takes(c, item - depth) && live_.consumers[c].released <= item - depth) {
        throw Violation("overwritten before release");
      }
    }
    const unsigned slot =
        asynchronous ? producer.shipped.acquire(bytes) : producer.shipped.acquire();
    if (slot != item % depth) throw Violation("slots out of order");
    Contents& contents = live_.slots[slot];
    for (std::uint8_t& value : contents.value[p]) value = 0;
    for (unsigned piece = 0; piece < case_.pieces; ++piece) contents.coming[p][piece] = mark(item);
    if (asynchronous) {
      ++producer.written;
      ++producer.committed;
    }
  }

  void write(unsigned p, Filling& producer) {
    const unsigned item = producer.written++;
    for (std::uint8_t& value : live_.slots[item % depth].value[p]) value = mark(item);
  }

  bool land(unsigned p, unsigned slot, unsigned piece) {
    std::uint8_t& coming = live_.slots[slot].coming[p][piece];
    if (coming == 0) return false;
    live_.slots[slot].value[p][piece] = coming;
    coming = 0;
    live_.producers[p].shipped.full(slot).complete(piece_bytes[piece]);
    return true;
  }

  bool drain(Filling& producer) {
    const auto before = producer.shipped;
    try {
      producer.shipped.drain();
    } catch (const Blocked&) {
      producer.shipped = before;
      return false;
    }
    ++producer.drained;
    for (unsigned c = 0; c < case_.consumers; ++c) {
      if (live_.consumers[c].released < items_) throw Violation("drained before release");
    }
    return true;
  }

  // Whether a consumer takes the item, or leaves it to another.
  bool takes(unsigned c, unsigned item) const {
    return case_.run == 0 || item / case_.run % case_.consumers == c;
  }

  // Whether all items of earlier runs have been waited for.
  bool is_its_turn(unsigned item) const {
    if (case_.run == 0 || item < case_.run) return true;
    const unsigned begin = item / case_.run * case_.run;
    return live_.consumers[(begin - 1) / case_.run % case_.consumers].waited >= begin;
  }

  // The end of the run that a consumer is in.
  unsigned end_of_run(const Using& consumer) const {
    return case_.run == 0 ? items_ : (consumer.released / case_.run + 1) * case_.run;
  }

  static void skip(Using& consumer, unsigned count) {
    consumer.shipped.skip(count);
    consumer.partner.skip(count);
    for (std::uint16_t* place : {&consumer.waited, &consumer.read, &consumer.released}) {
      *place = static_cast<std::uint16_t>(*place + count);
    }
  }

  bool use(Using& consumer) {
    const unsigned end = end_of_run(consumer);
    if (!use_slot(consumer, std::min(end, items_))) return false;
    const bool ended = consumer.read == end && consumer.released == end;
    if (case_.run > 0 && ended) skip(consumer, case_.run * (case_.consumers - 1));
    return true;
  }

  // One step with a slot before `end`.
  bool use_slot(Using& consumer, unsigned end) {
    if (consumer.read < consumer.released) {  // only with release_first
      read(consumer.read++);
      return true;
    }
    const bool wants =
        consumer.waited < end && consumer.waited - consumer.released < static_cast<int>(case_.held);
    if (wants) {
      if (!case_.unordered && !is_its_turn(consumer.waited)) return false;
      const bool ready = consumer.shipped.try_wait();
      if (!ready) return false;
      const unsigned item = consumer.waited++;
      // Both forms of wait(), by turns.
      const unsigned slot = item % 2 == 0 ? consumer.shipped.wait() : consumer.shipped.wait(ready);
      if (slot != item % depth) throw Violation("slots out of order");
      if (case_.pairs && consumer.partner.wait() != slot) throw Violation("partners apart");
      if (!case_.release_first) read(item);
      return true;
    }
    if (consumer.released == consumer.waited) return false;
    const unsigned item = consumer.released++;
    if (case_.skip_first && consumer.released == end) {
      consumer.shipped.skip(case_.run * (case_.consumers - 1));
    }
    if (consumer.shipped.oldest() != item % depth) throw Violation("released another slot");
    if (!case_.release_first) read(consumer.read++);
    if (!case_.pairs) {
      consumer.shipped.release();
    } else if (item % 2 == 0) {
      consumer.shipped.release();
      consumer.partner.skip_release();
    } else {
      consumer.shipped.skip_release();
      consumer.partner.release();
    }
    return true;
  }

  // Reading takes from wait to release: the slot must be right at both ends.
  void read(unsigned item) const {
    for (unsigned p = 0; p < case_.producers; ++p) {
      if (live_.producers[p].committed <= item) throw Violation("read before commit");
      for (unsigned piece = 0; piece < std::max(case_.pieces, 1U); ++piece) {
        if (live_.slots[item % depth].value[p][piece] != mark(item)) {
          throw Violation("read what is not there");
        }
      }
    }
  }

  bool done() const {
    const auto wrote = [&](const Filling& producer) {
      return producer.committed == items_ && producer.written == items_ &&
             producer.drained == (case_.drain ? 1 : 0);
    };
    const auto used = [&](const Using& consumer) {
      return consumer.released >= items_ && consumer.read >= items_;
    };
    return std::all_of(live_.producers, live_.producers + case_.producers, wrote) &&
           std::all_of(live_.consumers, live_.consumers + case_.consumers, used);
  }

  // The state's bytes, with consumers in an order of their own: they are all alike.
  std::string key() const {
    State state = live_;
    std::sort(state.consumers, state.consumers + case_.consumers,
              [](const Using& a, const Using& b) { return std::memcmp(&a, &b, sizeof a) < 0; });
    return {reinterpret_cast<const char*>(&state), sizeof state};
  }

  static std::uint8_t mark(unsigned item) { return static_cast<std::uint8_t>(item + 1); }

  static std::string name(const Step& step) {
    const std::string actor = std::to_string(step.actor);
    if (step.who != Step::copy) return (step.who == Step::producer ? "P" : "C") + actor;
    return "copy" + actor + "." + std::to_string(step.slot) + "." + std::to_string(step.piece);
  }

  const RingCase case_;
  const unsigned items_;  // round twice, and one more; or twice the run of every consumer
  State live_;
  Explored result_;
  std::unordered_set<std::string> seen_;
  std::vector<Step> path_;
};

inline Explored explore(const RingCase& given) {
  switch (given.depth) {
    case 1:
      return Explorer<1>(given).run();
    case 2:
      return Explorer<2>(given).run();
    case 3:
      return Explorer<3>(given).run();
    case 4:
      return Explorer<4>(given).run();
    default:
      throw std::logic_error("no model of this depth");
  }
}

}  // namespace ps::test
