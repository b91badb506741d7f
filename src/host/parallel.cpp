#include "penstock/host/parallel.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "penstock/base/checked.h"
#include "penstock/base/error.h"

namespace ps {
namespace {

// More than one range a thread: a core that is slow, or away, then holds up less.
constexpr std::size_t ranges_per_thread = 4;

// One call. Threads that come late find no range left and touch nothing but `next`.
struct Job {
  std::size_t count = 0, length = 0;  // of all, and of one range
  const std::function<void(std::size_t, std::size_t)>* work = nullptr;
  std::atomic<std::size_t> next{0};  // where the next range begins
  std::mutex mutex;
  std::condition_variable left;
  std::size_t inside = 0;  // helpers that may still be in `work`
  std::exception_ptr failure;

  void take_part() noexcept {
    for (;;) {
      const std::size_t begin = next.fetch_add(length);
      if (begin >= count) return;
      try {
        (*work)(begin, begin + std::min(length, count - begin));
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next.store(count);
      }
    }
  }
};

// The threads of the process that help with loops. Never destroyed: they may outlive main().
class Crew {
 public:
  static Crew& get() {
    static Crew& crew = *new Crew;
    return crew;
  }

  // The job may be helped with from now on, by at most `helpers`.
  void offer(const std::shared_ptr<Job>& job, std::size_t helpers) {
    const std::lock_guard lock(mutex_);
    try {
      start(helpers);
    } catch (const std::system_error&) {
      // The calling thread does it with those there are.
    }
    for (std::size_t i = 0; i < std::min(helpers, started_); ++i) offered_.push_back(job);
    offered_changed_.notify_all();
  }

  void withdraw(const std::shared_ptr<Job>& job) {
    const std::lock_guard lock(mutex_);
    std::erase(offered_, job);
  }

  void post(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    try {
      start(most_posted());
    } catch (const std::system_error&) {
      if (started_ == 0) throw;
    }
    posted_.push_back(std::move(work));
    offered_changed_.notify_one();
  }

 private:
  // Two cores are left to those who post: who feeds a device must not wait for a core.
  static std::size_t most_posted() { return std::max<std::size_t>(parallel_threads(), 3) - 2; }

  void start(std::size_t threads) {
    for (; started_ < threads; ++started_) std::thread([this] { loop(); }).detach();
  }

  void loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      const auto may_work = [&] { return !posted_.empty() && working_ < most_posted(); };
      offered_changed_.wait(lock, [&] { return !offered_.empty() || may_work(); });
      if (!offered_.empty()) {
        const std::shared_ptr<Job> job = std::move(offered_.front());
        offered_.pop_front();
        {
          const std::lock_guard entering(job->mutex);
          ++job->inside;
        }
        lock.unlock();
        help(*job);
        lock.lock();
      } else {
        std::function<void()> work = std::move(posted_.front());
        posted_.pop_front();
        ++working_;
        lock.unlock();
        work();
        work = nullptr;  // what it holds goes outside of the lock
        lock.lock();
        --working_;
      }
    }
  }

  static void help(Job& job) {
    job.take_part();
    const std::lock_guard leaving(job.mutex);
    if (--job.inside == 0) job.left.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable offered_changed_;
  std::deque<std::shared_ptr<Job>> offered_;
  std::deque<std::function<void()>> posted_;
  std::size_t started_ = 0, working_ = 0;
};

}  // namespace

std::size_t parallel_threads() {
  static const std::size_t threads = std::max(1U, std::thread::hardware_concurrency());
  return threads;
}

void parallel_ranges(std::size_t count, std::size_t grain,
                     const std::function<void(std::size_t, std::size_t)>& work) {
  if (grain == 0) detail::throw_invalid("grain", "1 or more", "0");
  if (count == 0) return;
  const std::size_t grains = ceil_div(count, grain);
  const std::size_t threads = std::min(parallel_threads(), grains);
  if (threads < 2) return work(0, count);

  const auto job = std::make_shared<Job>();
  job->count = count;
  job->length = ceil_div(grains, threads * ranges_per_thread) * grain;
  job->work = &work;
  Crew::get().offer(job, std::min(threads, ceil_div(count, job->length)) - 1);
  job->take_part();
  Crew::get().withdraw(job);  // from here on nobody enters
  std::unique_lock lock(job->mutex);
  job->left.wait(lock, [&] { return job->inside == 0; });
  if (job->failure) std::rethrow_exception(job->failure);
}

void parallel_post(std::function<void()> work) { Crew::get().post(std::move(work)); }

}  // namespace ps
