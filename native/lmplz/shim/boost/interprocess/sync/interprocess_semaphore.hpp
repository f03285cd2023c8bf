#pragma once

#include <condition_variable>
#include <mutex>

namespace boost {
namespace interprocess {

// Never thrown by this semaphore; KenLM has a catch clause for it.
struct interprocess_exception {
  int get_native_error() const { return 0; }
};

class interprocess_semaphore {
 public:
  explicit interprocess_semaphore(unsigned count) : count_(count) {}

  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    positive_.wait(lock, [this] { return count_ > 0; });
    --count_;
  }

  // Notifies under the lock: the thread that waits may destroy the semaphore as soon as it can go on.
  void post() {
    std::lock_guard<std::mutex> lock(mutex_);
    ++count_;
    positive_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable positive_;
  unsigned count_;
};

}  // namespace interprocess
}  // namespace boost
