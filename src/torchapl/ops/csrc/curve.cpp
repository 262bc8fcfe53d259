#include "curve.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "cache.h"
#include "geometry.h"
#include "kernels.h"
#include "operator.h"
#include "parallel.h"
#include "tensor.h"

namespace torchapl {
namespace {

// A task has about this many elements, as in torch's own kernels.
constexpr int64_t TASK = 16384;
// Rows of a map that are shorter than this are not worth a table's way into registers.
constexpr int64_t SHORTEST = 64;
// Columns whose numbers stay in the first-level cache while the rows pass by.
constexpr int64_t BLOCK = 256;
constexpr int64_t BLOCK_ROWS = 64;

size_t storage_of(const Tensor& tensor) {
  return std::find(dtypes().begin(), dtypes().end(), tensor.dtype()) - dtypes().begin();
}

// The number of levels of a table, 0 for none.
int64_t levels_of(const Tensor& table) {
  if (table.numel() == 0) return 0;
  const int64_t numbers = table.sizes()[table.dim() - 1];
  for (int64_t levels = 3; levels <= 8; ++levels) {
    if (numbers == int64_t{4} << levels) return levels;
  }
  refuse("table must have 4 * 2^levels numbers for each curve, with 3 to 8 levels");
}

bool fits(Extents sizes, int64_t first, Extents units) {
  return sizes.dims - first >= units.dims &&
         std::equal(units.begin(), units.end(), sizes.begin() + first);
}

// Returns a non-negative unit_dim. Nothing outside the tensors is read or written for arguments
// that pass.
int64_t check(const Tensor& input, const Tensor& jump, const Tensor& position, const Tensor& line,
              const Tensor& table, int64_t unit_dim) {
  check_tensor("input", input);
  check_tensor("jump", jump);
  check_tensor("position", position);
  check_tensor("line", line);
  check_tensor("table", table);
  const Extents sizes = input.sizes(), hinges = jump.sizes();
  if (hinges.dims == 0 || !(hinges == position.sizes())) {
    refuse("jump and position must agree in a shape (hinges, *unit_shape)");
  }
  const Extents units = {hinges.first + 1, hinges.dims - 1};
  const int64_t first = units.dims == 0 ? 0 : unit_dim < 0 ? unit_dim + sizes.dims : unit_dim;
  if (first < 0 || first > sizes.dims || !fits(sizes, first, units)) {
    refuse("the curves do not fit an input at unit_dim=" + std::to_string(unit_dim));
  }
  const bool has_line = line.dim() != 1 || line.numel() != 0;
  if (has_line &&
      (line.dim() != hinges.dims || line.sizes()[0] != 4 || !fits(line.sizes(), 1, units))) {
    refuse("line must have the shape (4, *unit_shape), or be empty");
  }
  if (levels_of(table) > 0 && (table.dim() != hinges.dims || units.dims > 1 ||
                               storage_of(table) != 0 || !fits(table.sizes(), 0, units))) {
    refuse("table must be float32 of shape (*unit_shape, numbers) with at most one axis of units");
  }
  return first;
}

Tensor copied(const Tensor& source, Tensor target) {
  copy(source, target);
  return target;
}

// What the loops need: dense maps, numbers in memory order.
struct Work {
  Geometry geometry;
  Storage storage;
  const void* x;
  void* y;
  const void* jump;
  const void* position;
  const void* line;  // a null pointer where it is max(0, x)
  int64_t hinges;
  const float* table;
  int64_t levels;
  bool past;
};

// As parallel(); each task is done when others can see what it wrote.
template <typename Function>
void in_parallel(int64_t tasks, bool past, const Function& function) {
  parallel(tasks, false, [&](int64_t task) {
    function(task);
    if (past) settle();
  });
}

// Calls run(unit, offset, n) for all pieces of rows, each of one unit; tasks are pieces of memory.
template <typename Function>
void by_pieces(const Geometry& g, bool past, const Function& run) {
  const int64_t elements = g.outer * g.units * g.inner;
  const int64_t tasks = std::max<int64_t>(1, elements / TASK);
  const int64_t size = (elements / tasks + 63) / 64 * 64;
  in_parallel((elements + size - 1) / size, past, [&](int64_t task) {
    const int64_t end = std::min(elements, (task + 1) * size);
    for (int64_t i = task * size; i < end;) {
      const int64_t row = i / g.inner, n = std::min(end, (row + 1) * g.inner) - i;
      run(row % g.units, i, n);
      i += n;
    }
  });
}

template <typename E, typename T = Arithmetic<E>>
void run_hinges(const Work& w, const CurvePrimitives<E>& loops) {
  const Geometry& g = w.geometry;
  Curves<E> curves = {};
  curves.hinges = w.hinges;
  curves.pitch = g.units;
  const auto at = [&](Curves<E>& c, int64_t unit, int64_t offset) {
    c.x = static_cast<const E*>(w.x) + offset;
    c.y = static_cast<E*>(w.y) + offset;
    c.line = static_cast<const T*>(w.line) + unit;
    c.jump = static_cast<const T*>(w.jump) + unit;
    c.position = static_cast<const T*>(w.position) + unit;
    c.past = w.past && in_whole_vectors(c.y, c.stride);
  };
  if (g.inner > 1 || g.units == 1) {
    curves.shared = true;
    curves.rows = 1;
    by_pieces(g, w.past, [&](int64_t unit, int64_t offset, int64_t n) {
      Curves<E> piece = curves;
      at(piece, unit, offset);
      piece.n = n;
      loops.hinges(piece);
    });
    return;
  }
  const int64_t blocks = (g.units + BLOCK - 1) / BLOCK;
  in_parallel(blocks * ((g.outer + BLOCK_ROWS - 1) / BLOCK_ROWS), w.past, [&](int64_t task) {
    const int64_t column = task % blocks * BLOCK, row = task / blocks * BLOCK_ROWS;
    Curves<E> block = curves;
    block.stride = g.units;
    at(block, column, row * g.units + column);
    block.rows = std::min(BLOCK_ROWS, g.outer - row);
    block.n = std::min(BLOCK, g.units - column);
    loops.hinges(block);
  });
}

template <typename E>
void run(Work w, const Capability& capability) {
  const Primitives<E>& kernels = capability.primitives;
  w.past = kernels.streams && goes_past<E>(w.geometry.outer * w.geometry.units * w.geometry.inner);
  const CurvePrimitives<E>& loops = capability.curves;
  const Geometry& g = w.geometry;
  const bool long_rows = g.units == 1 || g.inner >= SHORTEST;
  if (w.levels > 0 && loops.lookup != nullptr && long_rows &&
      w.hinges + 1 >= capability.curves.fewest_kinks) {
    const int64_t size = int64_t{4} << w.levels;
    by_pieces(g, w.past, [&](int64_t unit, int64_t offset, int64_t n) {
      E* y = static_cast<E*>(w.y) + offset;
      loops.lookup(static_cast<const E*>(w.x) + offset, y, n, w.table + unit * size, w.levels,
                   w.past && in_whole_vectors(y, 0));
    });
  } else if (w.line != nullptr) {
    run_hinges<E>(w, loops);
  } else {
    Problem problem;
    problem.outer = g.outer;
    problem.units = g.units;
    problem.inner = g.inner;
    problem.hinges = w.hinges;
    problem.storage = w.storage;
    problem.x = w.x;
    problem.out = w.y;
    problem.a = w.jump;
    problem.b = w.position;
    forward(problem, capability);
  }
}

template <typename... E>
void dispatch(ElementList<E...>, const Work& work, const Capability& capability) {
  int storage = 0;
  ((storage++ == static_cast<int>(work.storage) ? run<E>(work, capability) : void()), ...);
}

Tensor curve(const Tensor& input, const Tensor& jump, const Tensor& position, const Tensor& line,
             const Tensor& table, int64_t unit_dim) {
  unit_dim = check(input, jump, position, line, table, unit_dim);
  Tensor output = empty_like(input);
  if (output.numel() == 0) return output;

  const int64_t unit_dims = jump.dim() - 1;
  const auto is_double = [](const Tensor& tensor) { return storage_of(tensor) == 1; };
  const int32_t precision =
      dtypes()[is_double(input) || is_double(jump) || is_double(position) || is_double(line)];
  Work work = {};
  const auto look = [&](const Tensor& x) {
    work.geometry = find_geometry(x.dim(), x.sizes().first, x.strides().first, unit_dim, unit_dims);
    return work.geometry.direct;
  };
  Tensor x = input.share();
  if (!look(x)) x = clone(x);
  if (!look(x)) x = copied(x, empty_contiguous(x.sizes(), x.dtype()));
  look(x);
  if (precision == dtypes()[1] && !is_double(x)) {
    x = copied(x, empty_strided(x.sizes(), x.strides().first, precision));
  }

  // The axes of the units in memory order; those of size one may stand anywhere.
  std::vector<int64_t> axes = {0};
  for (const int64_t axis : work.geometry.unit_order) axes.push_back(axis + 1);
  for (int64_t axis = 1; axis <= unit_dims; ++axis) {
    if (jump.sizes()[axis] == 1) axes.push_back(axis);
  }
  const auto numbers = [&](const Tensor& tensor) {
    Tensor ordered = work.geometry.permuted() ? permuted(tensor, axes) : tensor.share();
    if (ordered.dtype() == precision && ordered.is_contiguous()) return ordered;
    return copied(ordered, empty_contiguous(ordered.sizes(), precision));
  };
  const Tensor a = numbers(jump), b = numbers(position);
  const bool has_line = line.numel() > 0;
  const Tensor straight = has_line ? numbers(line) : line.share();
  const Tensor y = same_layout(output, x) ? output.share() : empty_like(x);
  work.storage = static_cast<Storage>(storage_of(x));
  work.x = x.data();
  work.y = y.mutable_data();
  work.jump = a.data();
  work.position = b.data();
  work.line = has_line ? straight.data() : nullptr;
  work.hinges = jump.sizes()[0];
  if (table.is_contiguous()) {
    work.table = static_cast<const float*>(table.data());
    work.levels = levels_of(table);
  }
  dispatch(Elements{}, work, current_capability());
  if (y.data() != output.data()) copy(y, output);
  return output;
}

}  // namespace

void boxed_curve(StableIValue* stack, uint64_t, uint64_t) {
  const Tensor input = tensor_at(stack, 0), jump = tensor_at(stack, 1);
  const Tensor position = tensor_at(stack, 2), line = tensor_at(stack, 3);
  const Tensor table = tensor_at(stack, 4);
  stack[0] = given_away(curve(input, jump, position, line, table, static_cast<int64_t>(stack[5])));
}

}  // namespace torchapl
