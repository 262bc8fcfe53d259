#include "cache.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <limits>
#include <string>

#include "plan.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <emmintrin.h>
#endif

namespace torchapl {
namespace {

// The bytes of the largest cache that a core uses, as Linux tells; 0 elsewhere. (sysconf() adds up
// the caches of all cores of some processors.)
int64_t largest_cache() {
  int64_t largest = 0;
  for (int index = 0;; ++index) {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) +
                       "/size");
    int64_t size = 0;
    char unit = 'B';
    if (!(file >> size)) return largest;
    file >> unit;
    largest = std::max(largest, size << (unit == 'M' ? 20 : unit == 'K' ? 10 : 0));
  }
}

// Where no cache is known, nothing is written past it.
std::atomic<int64_t>& limit() {
  static std::atomic<int64_t> bytes = [] {
    const int64_t largest = largest_cache();
    return largest > 0 ? std::max(largest, SMALLER_MAP_BYTES) : std::numeric_limits<int64_t>::max();
  }();
  return bytes;
}

}  // namespace

int64_t past_from() { return limit().load(std::memory_order_relaxed); }

void set_past_from(int64_t bytes) { limit().store(bytes, std::memory_order_relaxed); }

void settle() {
#if defined(__x86_64__) && defined(__GNUC__)
  _mm_sfence();
#endif
}

}  // namespace torchapl
