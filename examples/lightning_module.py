"""Learned activations in a LightningModule: training, pictures, a checkpoint that loads.

python examples/lightning_module.py
torchapl report runs/lightning/curves -o lightning.html
"""

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import torchapl
from torchapl.integrations.lightning import CurveCallback, SwappedCheckpoints


class Classifier(SwappedCheckpoints, LightningModule):
    """Tells the inside of a ring from the outside; written for SiLU, and swapped below."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 32), nn.SiLU(), nn.Linear(32, 2))

    def training_step(self, batch: list[Tensor]) -> Tensor:
        """Return the loss of a batch."""
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        self.log("train_loss", loss, on_epoch=True, on_step=False)
        return loss

    def validation_step(self, batch: list[Tensor]) -> None:
        """Log the error, in percent."""
        x, y = batch
        self.log("validation_error", 100 * (self.net(x).argmax(1) != y).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Give the curves steps that suit them."""
        return torch.optim.AdamW(torchapl.parameter_groups(self), lr=1e-2, weight_decay=0.01)


seed_everything(0, verbose=False)
x = torch.randn(2000, 2)
rows = TensorDataset(x, (x.norm(dim=1) < 1).long())
train_rows, validation_rows = torch.utils.data.random_split(rows, (1600, 400))

classifier = Classifier()
classifier.net = torchapl.swap_activations(classifier.net, x[:100], num_hinges=8)
trainer = Trainer(
    max_epochs=5,
    accelerator="cpu",
    default_root_dir="runs/lightning",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    callbacks=[CurveCallback(name="ring with APL")],
)
trainer.fit(
    classifier,
    DataLoader(train_rows, batch_size=50, shuffle=True),
    DataLoader(validation_rows, batch_size=400),
)
print(f"validation error: {trainer.callback_metrics['validation_error']:.1f} %")

# The class knows of no swap; the checkpoint does.
trainer.save_checkpoint("runs/lightning/last.ckpt")
again = Classifier.load_from_checkpoint("runs/lightning/last.ckpt")
assert torch.equal(again.net(x), classifier.net(x))
print(f"loaded the checkpoint: {again.net[1]}")
