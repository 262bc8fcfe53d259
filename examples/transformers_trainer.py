"""Fine-tune a language model of transformers with learned activations, by its own Trainer.

    python examples/transformers_trainer.py
    torchapl report runs/transformers/curves -o transformers.html

The model is a small GPT-2 with random weights, so that nothing is downloaded; with
``AutoModelForCausalLM.from_pretrained("gpt2")`` in its place the rest stays as it is.
"""

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, GPT2Config, Trainer, TrainingArguments

import torchapl
from torchapl.integrations.transformers import CurveCallback, from_pretrained

TEXT = "Neural networks that learn their own activation functions. " * 40
FOLDER = "runs/transformers"


def pieces(text: str, length: int = 32) -> list[dict[str, Tensor]]:
    """Return the text's characters as rows of the same length."""
    rows = torch.tensor(list(text.encode())).split(length)
    return [{"input_ids": row, "labels": row} for row in rows if len(row) == length]


torch.manual_seed(0)
config = GPT2Config(
    n_layer=2, n_embd=64, n_head=4, n_positions=32, vocab_size=256, bos_token_id=0, eos_token_id=0
)
model = AutoModelForCausalLM.from_config(config)
data = pieces(TEXT)

# The outputs stay as they were; the GELUs are curves now, one for each of the 256 features.
example = {"input_ids": torch.stack([row["input_ids"] for row in data[:16]])}
model = torchapl.swap_activations(model, example, tolerance=0.003)
print(torchapl.describe(model))

optimizer = torch.optim.AdamW(torchapl.parameter_groups(model), lr=3e-3, weight_decay=0.01)
arguments = TrainingArguments(
    FOLDER,
    num_train_epochs=3,
    per_device_train_batch_size=8,
    logging_strategy="epoch",
    eval_strategy="epoch",
    save_strategy="epoch",
    report_to=[],
    disable_tqdm=True,
)
trainer = Trainer(
    model,
    arguments,
    train_dataset=data,
    eval_dataset=data[:16],
    optimizers=(optimizer, None),
    callbacks=[CurveCallback(name="GPT-2 with APL")],
)
trainer.train()

# Save and load: the from_pretrained of torchapl puts the curves back, to the bit.
model.eval().save_pretrained(f"{FOLDER}/final")
again = from_pretrained(AutoModelForCausalLM, f"{FOLDER}/final").eval()
with torch.no_grad():
    assert torch.equal(again(**example).logits, model(**example).logits)
print(f"loaded {FOLDER}/final: the same logits, bit for bit")
