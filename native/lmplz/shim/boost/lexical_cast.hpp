#pragma once

#include <string>

namespace boost {

// KenLM's pipeline only ever asks for the decimal digits of an integer.
template <class Target, class Number>
Target lexical_cast(Number number) {
  return std::to_string(number);
}

}  // namespace boost
