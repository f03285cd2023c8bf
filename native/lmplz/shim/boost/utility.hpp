#pragma once

#include "noncopyable.hpp"
