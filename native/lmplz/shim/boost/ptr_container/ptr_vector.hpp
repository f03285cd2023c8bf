#pragma once

#include "../scoped_array.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace boost {

template <class T>
class ptr_vector {
  typedef std::vector<std::unique_ptr<T> > Items;

 public:
  class iterator {
   public:
    explicit iterator(typename Items::iterator at) : at_(at) {}
    T &operator*() const { return **at_; }
    T *operator->() const { return at_->get(); }
    iterator &operator++() {
      ++at_;
      return *this;
    }
    bool operator==(const iterator &other) const { return at_ == other.at_; }
    bool operator!=(const iterator &other) const { return at_ != other.at_; }

   private:
    typename Items::iterator at_;
  };

  ~ptr_vector() { clear(); }

  void push_back(T *item) { items_.emplace_back(item); }
  // From the first to the last, as Boost does: KenLM's chains join their threads in this order.
  void clear() {
    for (std::unique_ptr<T> &item : items_) item.reset();
    items_.clear();
  }
  void reserve(std::size_t size) { items_.reserve(size); }
  std::size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  T &front() { return *items_.front(); }
  T &back() { return *items_.back(); }
  T &operator[](std::size_t i) { return *items_[i]; }
  const T &operator[](std::size_t i) const { return *items_[i]; }
  iterator begin() { return iterator(items_.begin()); }
  iterator end() { return iterator(items_.end()); }

 private:
  Items items_;
};

}  // namespace boost
