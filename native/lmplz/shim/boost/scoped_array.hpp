#pragma once

#include <cstddef>
#include <memory>

namespace boost {

template <class T>
class scoped_array {
 public:
  explicit scoped_array(T *items = nullptr) : items_(items) {}

  void reset(T *items = nullptr) { items_.reset(items); }
  T *get() const { return items_.get(); }
  T &operator[](std::ptrdiff_t i) const { return items_[i]; }

 private:
  std::unique_ptr<T[]> items_;
};

}  // namespace boost
