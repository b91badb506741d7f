// Where ExpertAnswers finds experts, and what it does if they are on a disk.
#include "host/clock.h"
#include "host/flag.h"
#include "outofcore/expert_answers.h"

namespace ps::detail {

// The block of an expert in host memory, as it is copied; waits until it has been read.
MemoryView ExpertAnswers::on_host(Key key) {
  if (compressed_ != nullptr) return compressed_->block(key / shape_.experts, key % shape_.experts);
  if (!reads_) return store_->block(key / shape_.experts, key % shape_.experts);
  const Pauses pauses;
  std::int64_t looked = now_ns();
  while (true) {
    reads_->release_copied(flag_value(copied_));
    if (const auto block = reads_->find(key)) return *block;
    if (cancelled_) throw ExpertsClosed("the experts were closed while a call was in flight");
    pauses.next();
    if (now_ns() - looked < 10'000'000) continue;
    look_for_faults();
    looked = now_ns();
  }
}

// Starts to read what the call must wait for. A call that needs all experts is probably followed by
// another one.
void ExpertAnswers::expect(const ExpertCall& call, const std::vector<std::int32_t>& experts) {
  if (!reads_) return;
  std::vector<Key> keys;
  const auto add = [&](std::int64_t layer, std::int64_t expert) {
    const Key key = layer * shape_.experts + expert;
    if (slots_.find(key) < 0) keys.push_back(key);
  };
  for (const std::int32_t expert : experts) add(call.layer, expert);
  const std::int64_t next = order_.after(call.layer, call.whole);
  if (call.whole && next != ExpertOrder::none && next != call.layer) {
    for (std::int64_t e = 0; e < shape_.experts; ++e) add(next, e);
  }
  reads_->expect(keys, ReadPriority::urgent);
}

bool ExpertAnswers::has_work() {
  if (reads_) reads_->release_copied(flag_value(copied_));
  return !wishes_.empty() || !hints_.empty() || (reads_ && reads_->copying());
}

void ExpertAnswers::give_up() noexcept {
  forget_wishes();
  drain();
  if (reads_) reads_->release_copied(enqueued_);
}

// Whether the expert of the first wish is in host memory; if not, reads it and those after it.
// Throws the error of the read.
bool ExpertAnswers::is_on_host() {
  if (!reads_) return true;
  std::vector<Key> keys;
  for (const Wish& wish : wishes_) {
    if (keys.size() == reads_->window()) break;
    if (slots_.find(wish.key) < 0) keys.push_back(wish.key);
  }
  reads_->release_copied(flag_value(copied_));
  reads_->expect(keys, ReadPriority::background);
  return reads_->find(wishes_.front().key).has_value();
}

}  // namespace ps::detail
