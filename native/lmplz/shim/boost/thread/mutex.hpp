#pragma once

#include <mutex>

namespace boost {

using std::mutex;
using std::unique_lock;

}  // namespace boost
