// What is written past the caches of the processor.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "primitives.h"

namespace torchapl {

// Maps of more bytes than this are written past the caches: a line that is about to be written as a
// whole is then not read before, which spares two sevenths of the traffic, and what reads such a
// map next would not find its beginning in a cache either way.
int64_t past_from();
void set_past_from(int64_t bytes);

template <typename E>
bool goes_past(int64_t elements) {
  return elements * static_cast<int64_t>(sizeof(E)) > past_from();
}

// Whether all vectors of rows at `stride` are aligned, whatever the width of a vector.
template <typename E>
bool in_whole_vectors(const E* start, int64_t stride) {
  constexpr size_t bytes = std::min<size_t>(LANES * sizeof(E), 64);
  return (reinterpret_cast<uintptr_t>(start) | stride * sizeof(E)) % bytes == 0;
}

// Waits until what was written past the caches can be seen by other threads.
void settle();

}  // namespace torchapl
