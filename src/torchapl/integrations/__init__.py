"""Learned activations in the tools that people train with; each module needs its tool installed.

- :mod:`torchapl.integrations.lightning`: a callback, and checkpoints of swapped models
- :mod:`torchapl.integrations.transformers`: the same for the ``Trainer`` of Hugging Face
- :mod:`torchapl.integrations.timm`: an ``act_layer`` for ``timm.create_model``
- :mod:`torchapl.integrations.tensorboard`: statistics and pictures for a ``SummaryWriter``
"""
