"""Read what the units of a network have learned, then make them smaller, or other layers.

python examples/learned_curves.py
"""

import torch
from torch import nn

import torchapl
from torchapl import APL, curves

# A network that has learned something: the product of two numbers.
torch.manual_seed(0)
x = torch.randn(2000, 2)
y = x.prod(dim=1, keepdim=True)
model = nn.Sequential(nn.Linear(2, 12), APL(12), nn.Linear(12, 1))
optimizer = torch.optim.Adam(torchapl.parameter_groups(model), lr=0.02)
for _ in range(300):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
print(f"mean squared error: {loss.item():.4f}")

# Read: all curves as a picture, shapes, slopes, values.
torchapl.plot(model).savefig("curves.png")
unit = model[1]
shape = curves.classify(unit)
print(f"convex: {int(shape.convex.sum())} of {len(shape.convex)}")
print(f"slopes on the far left: {curves.left_slope(unit).min():.2f} .. {unit.left_slope.max():.2f}")
values = curves.sample(unit, torch.linspace(-3, 3, 7))
print(f"the first curve at -3, -2, ..., 3: {[round(value, 2) for value in values[0].tolist()]}")

# Simplify: only the hinges that matter for these inputs; the result says what that changed.
smaller = curves.simplify(
    model, tolerance=0.01, ranges=curves.observe_ranges(model, [x]), example_inputs=x
)
print(smaller)

# Convert: the same function with layers that any runtime has, exact to rounding.
relu = curves.to_relu_network(smaller.model, x)
print(relu)
difference = (relu(x) - smaller.model(x)).abs().max().item()
assert difference < 1e-4
print(f"largest difference: {difference:.0e}")

# The other way: a fixed function as a unit that can be trained on.
fitted = curves.fit(torch.tanh, num_hinges=6, interval=(-3.0, 3.0))
model[1] = fitted.module(unit_shape=12)
print(f"tanh with 6 hinges: largest error {fitted.max_error:.3f}")
