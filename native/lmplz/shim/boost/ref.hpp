#pragma once

#include <functional>

namespace boost {

using std::ref;
template <class T>
using reference_wrapper = std::reference_wrapper<T>;

}  // namespace boost
