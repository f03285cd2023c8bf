#pragma once

#include "../ref.hpp"
#include "mutex.hpp"

#include <thread>

namespace boost {

// boost::thread keeps copies of its arguments and calls with them as lvalues, references unwrapped;
// std::thread would call with rvalues, which KenLM's workers do not take.
class thread {
 public:
  template <class Function, class First, class Second>
  thread(std::reference_wrapper<Function> function, First first, Second second)
      : thread_([function, first, second]() mutable { function.get()(first, unwrap(second)); }) {}

  void join() { thread_.join(); }

 private:
  template <class T>
  static T &unwrap(T &value) {
    return value;
  }
  template <class T>
  static T &unwrap(std::reference_wrapper<T> &wrapped) {
    return wrapped.get();
  }

  std::thread thread_;
};

}  // namespace boost
