"""Curves in the tools that people train with; each module needs its tool installed.

- :mod:`torchapl.integrations.lightning`: a callback for Lightning
- :mod:`torchapl.integrations.transformers`: a callback for the ``Trainer`` of Hugging Face
- :mod:`torchapl.integrations.tensorboard`: statistics and pictures for a ``SummaryWriter``
"""
